"""Kimi Delta Attention: every head's state has a row for each dim of a key, which decays by itself.

Columns of a head go in blocks, whose states lie together: a row of the block's columns for each dim of a key. Threads share blocks;
tokens follow each other. A block's columns see nothing of the others: what is computed does not depend on who computes beside it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.recurrent.exp2 import exp2_of
from edgellm.backends.cpu.kernels.softplus import softplus_of
from edgellm.backends.cpu.ops.recurrent import DECAYS, KDA
from edgellm.backends.cpu.simd import Isa, KernelFunction

ONE = np.float32(1.0)
LOG2_E = np.float32(math.log2(math.e))


def build(variant: str, isa: Isa) -> KernelFunction:
    return _decays(isa) if variant == "decays" else _scan(isa, wide=variant == "wide")


def _decays(isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32, load, store = isa("load_i64 load_f32 store_f32 load_f32x8 store_f32x8")
    add, mul, splat, extract = isa("add_f32x8 mul_f32x8 splat_f32x8 first_f32x8")
    softplus, exp2 = softplus_of(isa), exp2_of(isa)
    arguments = DECAYS.reader(isa, "step x x_stride out out_stride rates steps n count")

    @inline
    def decay(x, step, rate):
        return exp2(mul(rate, softplus(add(x, step))))

    def decays(op, ith, nth):
        step, x, x_stride, out, out_stride, rates, steps, n, count = arguments(op)
        rows = load_i64(step, count * 8)
        at, last = first_item(rows, n, ith, nth), first_item(rows, n, ith + 1, nth)
        while at < last:
            row, j = at // n, at % n
            end = min(n, j + last - at)
            at += end - j
            source, target = x + row * x_stride, out + row * out_stride
            while j + 8 <= end:
                store(target, j * 4, decay(load(source, j * 4), load(steps, j * 4), load(rates, j * 4)))
                j += 8
            while j < end:  # by vectors too, so that a value never depends on its place
                value = decay(splat(load_f32(source, j * 4)), splat(load_f32(steps, j * 4)), splat(load_f32(rates, j * 4)))
                store_f32(target, j * 4, extract(value))
                j += 1

    return decays


def _scan(isa: Isa, *, wide: bool) -> KernelFunction:
    load_i64, load_f32, load, zero = isa("load_i64 load_f32 load_f32x8 zero_f32x8")
    fma, hsum, splat, exp, extract = isa("fma_f32x8 hsum_f32x8 splat_f32x8 exp_f32x8 first_f32x8")
    block, width = (_wide_block(isa), 32) if wide else (_narrow_block(isa), 8)
    arguments = KDA.reader(
        isa, "step q q_stride k k_stride v v_stride decay decay_stride beta beta_stride out out_stride heads dim targets state_at"
    )
    EPS = KDA.at("eps")

    @inline
    def one_over_length(x, dim, eps):
        total = zero()
        for i in range(0, dim, 8):
            value = load(x, i * 4)
            total = fma(value, value, total)
        return ONE / np.sqrt(hsum(total) + eps)

    def scan(op, ith, nth):
        (
            step,
            q,
            q_stride,
            k,
            k_stride,
            v,
            v_stride,
            decay,
            decay_stride,
            beta,
            beta_stride,
            out,
            out_stride,
            heads,
            dim,
            targets,
            state_at,
        ) = arguments(op)
        eps, blocks, tokens = load_f32(op, EPS), dim // width, load_i64(step, abi.N_TOKENS * 8)
        scale = ONE / np.sqrt(np.float32(dim))
        for item in range(first_item(1, heads * blocks, ith, nth), first_item(1, heads * blocks, ith + 1, nth)):
            head, state, column = item // blocks, state_at + item * dim * width * 4, item * width * 4
            row = head * dim * 4
            for token in range(tokens):
                before, after = load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state
                query, key = q + token * q_stride + row, k + token * k_stride + row
                by_q, by_k = one_over_length(query, dim, eps) * scale, one_over_length(key, dim, eps)
                gate = ONE / (ONE + extract(exp(splat(-load_f32(beta + token * beta_stride, head * 4)))))
                block(
                    before,
                    after,
                    query,
                    key,
                    v + token * v_stride + column,
                    decay + token * decay_stride + row,
                    out + token * out_stride + column,
                    dim,
                    by_q,
                    by_k,
                    gate * by_k,
                )

    return scan


def _narrow_block(isa: Isa) -> Any:
    load_f32, load, store, splat = isa("load_f32 load_f32x8 store_f32x8 splat_f32x8")
    sub, mul, fma, zero = isa("sub_f32x8 mul_f32x8 fma_f32x8 zero_f32x8")

    @inline
    def block(before, after, q, k, v, decay, out, dim, by_q, by_k, gate):
        """Eight columns: what the key finds there, then the change, and what the query finds."""
        found, y = zero(), zero()
        for i in range(dim):
            found = fma(splat(load_f32(k, i * 4) * load_f32(decay, i * 4)), load(before, i * 32), found)
        change = mul(sub(load(v, 0), mul(found, splat(by_k))), splat(gate))
        for i in range(dim):
            s = fma(splat(load_f32(k, i * 4)), change, mul(load(before, i * 32), splat(load_f32(decay, i * 4))))
            store(after, i * 32, s)
            y = fma(splat(load_f32(q, i * 4)), s, y)
        store(out, 0, mul(y, splat(by_q)))

    return block


def _wide_block(isa: Isa) -> Any:
    load_f32, load, store, splat = isa("load_f32 load_f32x8 store_f32x8 splat_f32x8")
    sub, mul, fma, zero = isa("sub_f32x8 mul_f32x8 fma_f32x8 zero_f32x8")

    @inline
    def change(v, found, by_k, gate):
        return mul(sub(v, mul(found, splat(by_k))), splat(gate))

    @inline
    def block(before, after, q, k, v, decay, out, dim, by_q, by_k, gate):
        """Thirty-two."""
        f0, f1, f2, f3 = zero(), zero(), zero(), zero()
        for i in range(dim):
            key, at = splat(load_f32(k, i * 4) * load_f32(decay, i * 4)), i * 128
            f0, f1 = fma(key, load(before, at), f0), fma(key, load(before, at + 32), f1)
            f2, f3 = fma(key, load(before, at + 64), f2), fma(key, load(before, at + 96), f3)
        c0, c1 = change(load(v, 0), f0, by_k, gate), change(load(v, 32), f1, by_k, gate)
        c2, c3 = change(load(v, 64), f2, by_k, gate), change(load(v, 96), f3, by_k, gate)
        y0, y1, y2, y3 = zero(), zero(), zero(), zero()
        for i in range(dim):
            key, query, at = splat(load_f32(k, i * 4)), splat(load_f32(q, i * 4)), i * 128
            left = splat(load_f32(decay, i * 4))
            s0, s1 = fma(key, c0, mul(load(before, at), left)), fma(key, c1, mul(load(before, at + 32), left))
            s2, s3 = fma(key, c2, mul(load(before, at + 64), left)), fma(key, c3, mul(load(before, at + 96), left))
            store(after, at, s0)
            store(after, at + 32, s1)
            store(after, at + 64, s2)
            store(after, at + 96, s3)
            y0, y1, y2, y3 = fma(query, s0, y0), fma(query, s1, y1), fma(query, s2, y2), fma(query, s3, y3)
        store(out, 0, mul(y0, splat(by_q)))
        store(out, 32, mul(y1, splat(by_q)))
        store(out, 64, mul(y2, splat(by_q)))
        store(out, 96, mul(y3, splat(by_q)))

    return block
