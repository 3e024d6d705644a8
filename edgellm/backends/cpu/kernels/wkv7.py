"""RWKV-7's state of a head (dim of k, dim of v): it decays by its rows, forgets what a key stood for, and takes the key's value.

Threads share heads; tokens of a segment follow each other. Columns of a state, which are dims of values, go by 32 or by eight.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels._inline import inline
from edgellm.backends.cpu.kernels._partition import first_item
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.words_rwkv import WKV7
from edgellm.ops.rwkv import DECAY, SHORTEST

ONE = np.float32(1.0)


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_f32 = isa.load_i64, isa.load_f32
    prepare, finish = _prepare(isa), _finish(isa)
    block, width = (_wide_block(isa), 32) if variant == "wide" else (_narrow_block(isa), 8)
    arguments = WKV7.reader(isa, "step r r_stride w w_stride k k_stride v v_stride a a_stride first first_stride gate gate_stride "
                                 "out out_stride weights heads dim targets state_at segments scratch")
    EPS = WKV7.at("eps")

    def wkv7(op, ith, nth):
        (step, r, r_stride, w, w_stride, k, k_stride, v, v_stride, a, a_stride, first, first_stride, gate, gate_stride, out,
         out_stride, weights, heads, dim, targets, state_at, segments, scratch) = arguments(op)
        eps, row_bytes = load_f32(op, EPS), dim * 4
        for head in range(first_item(1, heads, ith, nth), first_item(1, heads, ith + 1, nth)):
            at, state = head * row_bytes, state_at + head * dim * row_bytes
            for segment in range(load_i64(step, abi.N_SEGMENTS * 8)):
                row = load_i64(segments, segment * 16)
                for token in range(row, row + load_i64(segments, segment * 16 + 8)):
                    reads, target = r + token * r_stride + at, out + token * out_stride + at
                    taken = prepare(reads, w + token * w_stride + at, k + token * k_stride + at, v + token * v_stride + at,
                                    a + token * a_stride + at, first + token * first_stride + at if first else 0,
                                    gate + token * gate_stride + at, weights + at, heads * row_bytes, dim, scratch)
                    before, after = load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state
                    for column in range(0, row_bytes, width * 4):
                        block(before + column, after + column, scratch, reads, scratch + 4 * row_bytes + column, target + column,
                              dim)
                    finish(target, weights + at + 3 * heads * row_bytes, weights + at + 4 * heads * row_bytes,
                           scratch + 4 * row_bytes, taken, dim, eps)

    return wkv7


def _prepare(isa: Isa) -> Any:
    """The rows of scratch: kk, kk * a, decays, keys, values; what is returned is the sum of r * k * r_k."""
    load, store, splat, add, sub, mul, fma = (isa.load_f32x8, isa.store_f32x8, isa.splat_f32x8, isa.add_f32x8, isa.sub_f32x8,
                                              isa.mul_f32x8, isa.fma_f32x8)
    div, exp, zero, hsum = isa.div_f32x8, isa.exp_f32x8, isa.zero_f32x8, isa.hsum_f32x8
    decay, shortest = np.float32(DECAY), np.float32(SHORTEST)

    @inline
    def sigmoid(x):
        return div(splat(ONE), add(splat(ONE), exp(sub(zero(), x))))

    @inline
    def prepare(r, w, k, v, a, first, gate, weights, weight_bytes, dim, scratch):
        k_k, k_a, r_k = weights, weights + weight_bytes, weights + 2 * weight_bytes
        total, taken, row = zero(), zero(), dim * 4
        for j in range(0, row, 32):
            x = mul(load(k, j), load(k_k, j))
            total = fma(x, x, total)
        inverse = splat(ONE / max(np.sqrt(hsum(total)), shortest))
        for j in range(0, row, 32):
            rate, key = sigmoid(load(a, j)), load(k, j)
            kk = mul(mul(key, load(k_k, j)), inverse)
            key = mul(key, fma(sub(rate, splat(ONE)), load(k_a, j), splat(ONE)))
            store(scratch, j, kk)
            store(scratch, row + j, mul(kk, rate))
            store(scratch, 2 * row + j, exp(mul(splat(decay), sigmoid(load(w, j)))))
            store(scratch, 3 * row + j, key)
            value = load(v, j)
            if first:
                value = fma(sub(load(first, j), value), sigmoid(load(gate, j)), value)
            store(scratch, 4 * row + j, value)
            taken = fma(mul(load(r, j), key), load(r_k, j), taken)
        return hsum(taken)

    return prepare


def _narrow_block(isa: Isa) -> Any:
    load, store, splat, mul, sub, fma, zero = (isa.load_f32x8, isa.store_f32x8, isa.splat_f32x8, isa.mul_f32x8, isa.sub_f32x8,
                                               isa.fma_f32x8, isa.zero_f32x8)
    load_f32 = isa.load_f32

    @inline
    def block(before, after, scratch, r, v, out, dim):
        """Eight columns: what the key finds there, then the change, and what the receptance reads."""
        row, found, value, y = dim * 4, zero(), load(v, 0), zero()
        for i in range(dim):
            found = fma(splat(load_f32(scratch, i * 4)), load(before, i * row), found)
        found = sub(zero(), found)
        for i in range(dim):
            kept = mul(load(before, i * row), splat(load_f32(scratch, 2 * row + i * 4)))
            s = fma(splat(load_f32(scratch, row + i * 4)), found, fma(splat(load_f32(scratch, 3 * row + i * 4)), value, kept))
            store(after, i * row, s)
            y = fma(splat(load_f32(r, i * 4)), s, y)
        store(out, 0, y)

    return block


def _wide_block(isa: Isa) -> Any:
    load, store, splat, mul, sub, fma, zero = (isa.load_f32x8, isa.store_f32x8, isa.splat_f32x8, isa.mul_f32x8, isa.sub_f32x8,
                                               isa.fma_f32x8, isa.zero_f32x8)
    load_f32 = isa.load_f32

    @inline
    def changed(state, decay, rate, found, key, value):
        return fma(rate, found, fma(key, value, mul(state, decay)))

    @inline
    def block(before, after, scratch, r, v, out, dim):
        """Thirty-two."""
        row = dim * 4
        f0, f1, f2, f3 = zero(), zero(), zero(), zero()
        for i in range(dim):
            kk, at = splat(load_f32(scratch, i * 4)), i * row
            f0, f1 = fma(kk, load(before, at), f0), fma(kk, load(before, at + 32), f1)
            f2, f3 = fma(kk, load(before, at + 64), f2), fma(kk, load(before, at + 96), f3)
        f0, f1, f2, f3 = sub(zero(), f0), sub(zero(), f1), sub(zero(), f2), sub(zero(), f3)
        y0, y1, y2, y3 = zero(), zero(), zero(), zero()
        for i in range(dim):
            rate, decay = splat(load_f32(scratch, row + i * 4)), splat(load_f32(scratch, 2 * row + i * 4))
            key, read, at = splat(load_f32(scratch, 3 * row + i * 4)), splat(load_f32(r, i * 4)), i * row
            s0 = changed(load(before, at), decay, rate, f0, key, load(v, 0))
            s1 = changed(load(before, at + 32), decay, rate, f1, key, load(v, 32))
            s2 = changed(load(before, at + 64), decay, rate, f2, key, load(v, 64))
            s3 = changed(load(before, at + 96), decay, rate, f3, key, load(v, 96))
            store(after, at, s0)
            store(after, at + 32, s1)
            store(after, at + 64, s2)
            store(after, at + 96, s3)
            y0, y1, y2, y3 = fma(read, s0, y0), fma(read, s1, y1), fma(read, s2, y2), fma(read, s3, y3)
        store(out, 0, y0)
        store(out, 32, y1)
        store(out, 64, y2)
        store(out, 96, y3)

    return block


def _finish(isa: Isa) -> Any:
    """A layer norm of a head's row, in place, and values times `taken`."""
    load, store, splat, add, sub, mul, fma = (isa.load_f32x8, isa.store_f32x8, isa.splat_f32x8, isa.add_f32x8, isa.sub_f32x8,
                                              isa.mul_f32x8, isa.fma_f32x8)
    zero, hsum = isa.zero_f32x8, isa.hsum_f32x8

    @inline
    def finish(y, scale, bias, v, taken, dim, eps):
        total, squares, row = zero(), zero(), dim * 4
        for j in range(0, row, 32):
            total = add(total, load(y, j))
        centre = splat(hsum(total) / np.float32(dim))
        for j in range(0, row, 32):
            away = sub(load(y, j), centre)
            squares = fma(away, away, squares)
        factor = splat(ONE / np.sqrt(hsum(squares) / np.float32(dim) + eps))
        for j in range(0, row, 32):
            normal = mul(sub(load(y, j), centre), factor)
            store(y, j, fma(splat(taken), load(v, j), fma(normal, load(scale, j), load(bias, j))))

    return finish
