"""The gated delta rule: every head's state (dim_k, dim_v) decays, drops the key's old value, and adds its new one.

Columns of a head go in blocks, whose states lie together: a row of the block's columns for each dim of a key; they have a factor
of their own (see decayed.py). Threads share blocks; tokens follow each other. A block's columns do not depend on the others, so
results are the same for any number of threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.recurrent import vectors
from edgellm.backends.cpu.kernels.recurrent.decayed import ONE, kept, stack
from edgellm.backends.cpu.kernels.recurrent.exp2 import exp2_of
from edgellm.backends.cpu.kernels.softplus import softplus_of
from edgellm.backends.cpu.ops.recurrent import DELTA_NET
from edgellm.backends.cpu.simd import Isa, KernelFunction

WIDE = 32  # columns of a block, where a head's are a multiple
LOG2_E = np.float32(math.log2(math.e))


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    block, width = (_wide_block(isa), WIDE) if variant == "wide" else (_narrow_block(isa), 8)
    pairs = variant == "wide" and isa.level.lanes > 8
    two_blocks = _four_vectors(isa, isa.level.lanes)
    eight_tokens, held, table = _eight_tokens(isa), kept(isa), stack(isa, 32)
    arguments = DELTA_NET.reader(
        isa,
        "step x x_stride alpha alpha_stride beta beta_stride out out_stride a dt k_heads v_heads "
        "dim_k dim_v grouped targets state_at",
    )
    EPS = DELTA_NET.at("eps")

    def delta_net(op, ith, nth):
        (
            step,
            x,
            x_stride,
            alpha,
            alpha_stride,
            beta,
            beta_stride,
            out,
            out_stride,
            a,
            dt,
            k_heads,
            v_heads,
            dim_k,
            dim_v,
            grouped,
            targets,
            state_at,
        ) = arguments(op)
        eps, blocks, numbers, tokens = load_f32(op, EPS), dim_v // width, table(), load_i64(step, abi.N_TOKENS * 8)
        room = dim_k * width * 4
        item, end = first_item(1, v_heads * blocks, ith, nth), first_item(1, v_heads * blocks, ith + 1, nth)
        while item < end:
            both = pairs and item + 1 < end and item % blocks + 1 < blocks  # blocks of a head
            head, state = item // blocks, state_at + item * (room + width * 4)
            source = (head // (v_heads // k_heads) if grouped else head % k_heads) * dim_k * 4
            values, keys = (2 * k_heads * dim_k + item * width) * 4, source + k_heads * dim_k * 4
            for token in range(tokens):
                if token % 8 == 0:
                    eight_tokens(
                        alpha + head * 4,
                        alpha_stride,
                        beta + head * 4,
                        beta_stride,
                        x + source,
                        keys - source,
                        x_stride,
                        dim_k,
                        load_f32(dt, head * 4),
                        load_f32(a, head * 4) * LOG2_E,
                        eps,
                        token,
                        tokens,
                        numbers,
                    )
                number, row = numbers + token % 8 * 4, x + token * x_stride
                before, after = load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state
                target, decay, gate = out + token * out_stride + item * width * 4, load_f32(number, 0), load_f32(number, 32)
                by_q, by_k, next_block = load_f32(number, 64), load_f32(number, 96), room + width * 4
                if both:
                    before1, after1 = before + next_block, after + next_block
                    before1, factor1 = held(before1, after1, room, load_f32(before1, room) * decay)
                    before, factor = held(before, after, room, load_f32(before, room) * decay)
                    two_blocks(
                        before,
                        after,
                        before1,
                        after1,
                        row + source,
                        row + keys,
                        row + values,
                        target,
                        dim_k,
                        gate,
                        by_q,
                        by_k,
                        factor,
                        factor1,
                    )
                    store_f32(after1, room, factor1)
                else:
                    before, factor = held(before, after, room, load_f32(before, room) * decay)
                    block(before, after, row + source, row + keys, row + values, target, dim_k, gate, by_q, by_k, factor)
                store_f32(after, room, factor)
            item += 2 if both else 1

    return delta_net


def _eight_tokens(isa: Isa) -> Any:
    """Of eight tokens: decays, gates, and factors that normalise queries and keys."""
    load_f32, store_f32, load, store = isa("load_f32 store_f32 load_f32x8 store_f32x8")
    splat, add, mul, div, fma = isa("splat_f32x8 add_f32x8 mul_f32x8 div_f32x8 fma_f32x8")
    hsum, zero = isa("hsum_f32x8 zero_f32x8")
    softplus, exp2 = softplus_of(isa), exp2_of(isa)

    @inline
    def one_over_length(x, dim, eps):
        total = zero()
        for i in range(0, dim, 8):
            value = load(x, i * 4)
            total = fma(value, value, total)
        return ONE / np.sqrt(hsum(total) + eps)

    @inline
    def eight_tokens(alpha, alpha_stride, beta, beta_stride, q, k, x_stride, dim_k, dt, rate, eps, token, tokens, numbers):
        """`k`: bytes from a query to its key."""
        scale = ONE / np.sqrt(np.float32(dim_k))
        for i in range(8):
            t = min(token + i, tokens - 1)
            store_f32(numbers, i * 4, load_f32(alpha, t * alpha_stride) + dt)
            store_f32(numbers, i * 4 + 32, load_f32(beta, t * beta_stride))
            if token + i < tokens:
                store_f32(numbers, i * 4 + 64, one_over_length(q + t * x_stride, dim_k, eps) * scale)
                store_f32(numbers, i * 4 + 96, one_over_length(q + k + t * x_stride, dim_k, eps))
        store(numbers, 0, exp2(mul(splat(rate), softplus(load(numbers, 0)))))
        power = exp2(mul(load(numbers, 32), splat(-LOG2_E)))
        store(numbers, 32, div(splat(ONE), add(splat(ONE), power)))

    return eight_tokens


def _narrow_block(isa: Isa) -> Any:
    load_f32, load, store, splat = isa("load_f32 load_f32x8 store_f32x8 splat_f32x8")
    sub, mul, fma, zero = isa("sub_f32x8 mul_f32x8 fma_f32x8 zero_f32x8")

    @inline
    def block(before, after, q, k, v, out, dim_k, gate, by_q, by_k, factor):
        """Eight columns: what the key finds there, then the change, and what the query finds."""
        found, y = zero(), zero()
        for i in range(dim_k):
            found = fma(splat(load_f32(k, i * 4)), load(before, i * 32), found)
        change = mul(sub(load(v, 0), mul(found, splat(by_k * factor))), splat(gate * by_k / factor))
        for i in range(dim_k):
            s = fma(splat(load_f32(k, i * 4)), change, load(before, i * 32))
            store(after, i * 32, s)
            y = fma(splat(load_f32(q, i * 4)), s, y)
        store(out, 0, mul(y, splat(by_q * factor)))

    return block


def _wide_block(isa: Isa) -> Any:
    four = _four_vectors(isa, 8)
    half = WIDE * 2

    @inline
    def block(before, after, q, k, v, out, dim_k, gate, by_q, by_k, factor):
        """Thirty-two."""
        four(before, after, before + half, after + half, q, k, v, out, dim_k, gate, by_q, by_k, factor, factor)

    return block


def _four_vectors(isa: Isa, lanes: int) -> Any:
    """A block of thirty-two columns in vectors of eight lanes, or two in those of sixteen: a sum over a key's dims waits for
    itself, so four go at once. The second two begin at `before1` and `after1`.
    """
    load_f32, wide, half = isa.load_f32, vectors.of_lanes(isa, lanes), lanes * 4
    load, store, splat, sub, mul, fma, zero = wide.load, wide.store, wide.splat, wide.sub, wide.mul, wide.fma, wide.zero

    @inline
    def change(v, found, scale, gate):
        return mul(sub(v, mul(found, splat(scale))), splat(gate))

    @inline
    def four_vectors(before, after, before1, after1, q, k, v, out, dim_k, gate, by_q, by_k, factor, factor1):
        f0, f1, f2, f3 = zero(), zero(), zero(), zero()
        for i in range(dim_k):
            key, at = splat(load_f32(k, i * 4)), i * WIDE * 4
            f0, f1 = fma(key, load(before, at), f0), fma(key, load(before, at + half), f1)
            f2, f3 = fma(key, load(before1, at), f2), fma(key, load(before1, at + half), f3)
        scale, scale1, gate, gate1 = by_k * factor, by_k * factor1, gate * by_k / factor, gate * by_k / factor1
        c0, c1 = change(load(v, 0), f0, scale, gate), change(load(v, half), f1, scale, gate)
        c2, c3 = change(load(v, 2 * half), f2, scale1, gate1), change(load(v, 3 * half), f3, scale1, gate1)
        y0, y1, y2, y3 = zero(), zero(), zero(), zero()
        for i in range(dim_k):
            key, query, at = splat(load_f32(k, i * 4)), splat(load_f32(q, i * 4)), i * WIDE * 4
            s0, s1 = fma(key, c0, load(before, at)), fma(key, c1, load(before, at + half))
            s2, s3 = fma(key, c2, load(before1, at)), fma(key, c3, load(before1, at + half))
            store(after, at, s0)
            store(after, at + half, s1)
            store(after1, at, s2)
            store(after1, at + half, s3)
            y0, y1, y2, y3 = fma(query, s0, y0), fma(query, s1, y1), fma(query, s2, y2), fma(query, s3, y3)
        read, read1 = splat(by_q * factor), splat(by_q * factor1)
        store(out, 0, mul(y0, read))
        store(out, half, mul(y1, read))
        store(out, 2 * half, mul(y2, read1))
        store(out, 3 * half, mul(y3, read1))

    return four_vectors
