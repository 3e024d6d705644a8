"""The gated delta rule: every head's state (dim_k, dim_v) decays, forgets what a key stood for, and takes its new value.

Threads share blocks of a head's columns; tokens of a segment follow each other. A block's columns see nothing of the others, so
what is computed does not depend on who computes beside it.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels import _softplus
from edgellm.backends.cpu.kernels._inline import inline
from edgellm.backends.cpu.kernels._partition import first_item
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.words import DELTA_NET

VECTORS = {"wide": 4, "narrow": 1}               # of eight columns in a block


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_f32, load, store = isa.load_i64, isa.load_f32, isa.load_f32x8, isa.store_f32x8
    splat, add, sub, mul, div, fma = isa.splat_f32x8, isa.add_f32x8, isa.sub_f32x8, isa.mul_f32x8, isa.div_f32x8, isa.fma_f32x8
    exp, first, hsum, zero = isa.exp_f32x8, isa.first_f32x8, isa.hsum_f32x8, isa.zero_f32x8
    softplus, width, wide = _softplus.build(isa), 8 * VECTORS[variant], variant == "wide"
    arguments = DELTA_NET.reader(isa, "step x x_stride alpha alpha_stride beta beta_stride out out_stride a dt k_heads v_heads "
                                      "dim_k dim_v grouped targets state_at segments")
    EPS = DELTA_NET.at("eps")

    @inline
    def one_over_length(x, dim, eps):
        total = zero()
        for i in range(0, dim, 8):
            value = load(x, i * 4)
            total = fma(value, value, total)
        return np.float32(1.0) / np.sqrt(hsum(total) + eps)

    @inline
    def narrow_block(before, after, q, k, v, out, dim_k, row_bytes, decay, gate, by_q, by_k):
        """Eight columns: what the key finds there, then the change, and what the query finds."""
        found = zero()
        for i in range(dim_k):
            found = fma(splat(load_f32(k, i * 4) * by_k), mul(load(before, i * row_bytes), decay), found)
        change = mul(sub(load(v, 0), found), gate)
        y = zero()
        for i in range(dim_k):
            s = fma(splat(load_f32(k, i * 4) * by_k), change, mul(load(before, i * row_bytes), decay))
            store(after, i * row_bytes, s)
            y = fma(splat(load_f32(q, i * 4) * by_q), s, y)
        store(out, 0, y)

    @inline
    def wide_block(before, after, q, k, v, out, dim_k, row_bytes, decay, gate, by_q, by_k):
        """Thirty-two."""
        f0, f1, f2, f3 = zero(), zero(), zero(), zero()
        for i in range(dim_k):
            key, at = splat(load_f32(k, i * 4) * by_k), i * row_bytes
            f0 = fma(key, mul(load(before, at), decay), f0)
            f1 = fma(key, mul(load(before, at + 32), decay), f1)
            f2 = fma(key, mul(load(before, at + 64), decay), f2)
            f3 = fma(key, mul(load(before, at + 96), decay), f3)
        c0, c1 = mul(sub(load(v, 0), f0), gate), mul(sub(load(v, 32), f1), gate)
        c2, c3 = mul(sub(load(v, 64), f2), gate), mul(sub(load(v, 96), f3), gate)
        y0, y1, y2, y3 = zero(), zero(), zero(), zero()
        for i in range(dim_k):
            key, query, at = splat(load_f32(k, i * 4) * by_k), splat(load_f32(q, i * 4) * by_q), i * row_bytes
            s0, s1 = fma(key, c0, mul(load(before, at), decay)), fma(key, c1, mul(load(before, at + 32), decay))
            s2, s3 = fma(key, c2, mul(load(before, at + 64), decay)), fma(key, c3, mul(load(before, at + 96), decay))
            store(after, at, s0)
            store(after, at + 32, s1)
            store(after, at + 64, s2)
            store(after, at + 96, s3)
            y0, y1, y2, y3 = fma(query, s0, y0), fma(query, s1, y1), fma(query, s2, y2), fma(query, s3, y3)
        store(out, 0, y0)
        store(out, 32, y1)
        store(out, 64, y2)
        store(out, 96, y3)

    block = wide_block if wide else narrow_block

    def delta_net(op, ith, nth):
        (step, x, x_stride, alpha, alpha_stride, beta, beta_stride, out, out_stride, a, dt, k_heads, v_heads, dim_k, dim_v, grouped,
         targets, state_at, segments) = arguments(op)
        eps, scale, blocks = load_f32(op, EPS), np.float32(1.0) / np.sqrt(np.float32(dim_k)), dim_v // width
        for item in range(first_item(1, v_heads * blocks, ith, nth), first_item(1, v_heads * blocks, ith + 1, nth)):
            head, column = item // blocks, item % blocks * width
            source = head // (v_heads // k_heads) if grouped else head % k_heads
            values = (2 * k_heads * dim_k + head * dim_v + column) * 4
            state = state_at + (head * dim_k * dim_v + column) * 4
            for segment in range(load_i64(step, abi.N_SEGMENTS * 8)):
                row = load_i64(segments, segment * 16)
                for token in range(row, row + load_i64(segments, segment * 16 + 8)):
                    q = x + token * x_stride + source * dim_k * 4
                    k = q + k_heads * dim_k * 4
                    size = softplus(splat(load_f32(alpha + token * alpha_stride, head * 4) + load_f32(dt, head * 4)))
                    decay = exp(mul(splat(load_f32(a, head * 4)), size))
                    power = exp(sub(zero(), splat(load_f32(beta + token * beta_stride, head * 4))))
                    gate = div(splat(1.0), add(splat(1.0), power))
                    block(load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state, q, k,
                          x + token * x_stride + values, out + token * out_stride + (head * dim_v + column) * 4, dim_k, dim_v * 4,
                          splat(first(decay)), splat(first(gate)), one_over_length(q, dim_k, eps) * scale,
                          one_over_length(k, dim_k, eps))

    return delta_net
