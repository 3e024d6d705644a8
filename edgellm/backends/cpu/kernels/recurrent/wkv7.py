"""RWKV-7's state of a head (dim of k, dim of v): each row decays, the key's old value is removed, and its new value is added.

Threads share heads; tokens follow each other. Columns of a state, which are dims of values, lie in blocks of sixteen or eight: a
row of them for each dim of a key. Rows have factors of their own (see decayed.py), which a head's rows take when one is small.
A pass over a state also computes the value it holds for the next token's key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.recurrent.decayed import LEAST, ONE
from edgellm.backends.cpu.kernels.recurrent.exp2 import exp2_of
from edgellm.backends.cpu.ops.rwkv import WKV7
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, F32X8, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.ops.rwkv import DECAY, SHORTEST

LOG2_E, V16F = np.float32(math.log2(math.e)), vector(F32, 16)
VECTORS = {"wide": 2, "narrow": 1}  # of eight columns in a block
# Rows of scratch for a token, of which there are two: the keys that find and remove old values, keys and receptances, all times or
# by the factors; values; factors; the sum of r * k * r_k. After both: the value found, and ones.
FINDS, TAKES, KEYS, READS, VALUES, FACTORS, SUM, OF_TOKEN = range(8)
FOUND, ONES = 2 * OF_TOKEN, 2 * OF_TOKEN + 1


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, load, store = isa("load_i64 load_f32 load_f32x8 store_f32x8")
    splat, mul, fma = isa("splat_f32x8 mul_f32x8 fma_f32x8")
    width = 8 * VECTORS[variant]
    prepare, norm, find, change = _prepare(isa), _norm(isa), _find(isa, VECTORS[variant]), _change(isa, VECTORS[variant])
    pairs, change_two = variant == "wide" and isa.level.lanes > 8, _change_two(isa)
    arguments = WKV7.reader(isa, "step out out_stride weights normal heads dim targets state_at scratch")
    EPS = WKV7.at("eps")

    @inline
    def decayed(before, after, factors, dim):
        """Rows times their factors."""
        for block in range(0, dim * dim * 4, dim * width * 4):
            for i in range(dim):
                for part in range(0, width * 4, 32):
                    at = block + i * width * 4 + part
                    store(after, at, mul(load(before, at), splat(load_f32(factors, i * 4))))

    @inline
    def finish(y, values, taken, dim):
        for j in range(0, dim * 4, 32):
            store(y, j, fma(splat(taken), load(values, j), load(y, j)))

    def wkv7(op, ith, nth):
        step, out, out_stride, weights, normal, heads, dim, targets, state_at, scratch = arguments(op)
        eps, row, room, tokens = load_f32(op, EPS), dim * 4, dim * dim * 4, load_i64(step, abi.N_TOKENS * 8)
        found, ones = scratch + FOUND * row, scratch + ONES * row
        for j in range(0, row, 32):
            store(ones, j, splat(ONE))
        for head in range(first_item(1, heads, ith, nth), first_item(1, heads, ith + 1, nth)):
            state, ready = state_at + head * (room + row), False
            scale = weights + (3 * heads + head) * row
            for token in range(tokens):
                rows, later = scratch + token % 2 * OF_TOKEN * row, scratch + (token + 1) % 2 * OF_TOKEN * row
                before, after = load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state
                if not ready:
                    if not prepare(op, head, token, rows, before + room) >= LEAST:
                        decayed(before, after, before + room, dim)
                        prepare(op, head, token, rows, ones)
                        before = after
                    for column in range(0, dim, width):
                        find(before + column * row, rows + FINDS * row, found + column * 4, dim)
                ready = token + 1 < tokens and load_i64(targets, token * 16 + 16) + state == after
                if ready:
                    ready = prepare(op, head, token + 1, later, rows + FACTORS * row) >= LEAST
                target = out + token * out_stride + head * row
                column = 0
                while column < dim:
                    states, changed, at, key = before + column * row, after + column * row, column * 4, later + FINDS * row
                    if pairs and column + 2 * width <= dim:
                        change_two(states, changed, rows, found + at, key, rows + VALUES * row + at, target + at, dim)
                        column += 2 * width
                    else:
                        change(states, changed, rows, found + at, key, rows + VALUES * row + at, target + at, dim)
                        column += width
                for j in range(0, row, 32):
                    store(after, room + j, load(rows, FACTORS * row + j))
                if normal:
                    norm(target, scale, scale + heads * row, dim, eps)
                finish(target, rows + VALUES * row, load_f32(rows, SUM * row), dim)

    return wkv7


def _prepare(isa: Isa) -> Any:
    """The rows of scratch for a token of a head, from the factors before it; returns the least factor after it."""
    load, store, splat, add, sub, mul, fma = isa("load_f32x8 store_f32x8 splat_f32x8 add_f32x8 sub_f32x8 mul_f32x8 fma_f32x8")
    div, zero, hsum, smaller, store_f32 = isa("div_f32x8 zero_f32x8 hsum_f32x8 smaller_f32x8 store_f32")
    exp2 = exp2_of(isa)
    least = isa.make("least", types.float32, (F32X8,), lambda e, x: e.fold(x, e.smaller))
    decay, shortest = np.float32(DECAY) * LOG2_E, np.float32(SHORTEST)
    arguments = WKV7.reader(
        isa, "r r_stride w w_stride k k_stride v v_stride a a_stride first first_stride gate gate_stride weights heads dim"
    )

    @inline
    def sigmoid(x):
        return div(splat(ONE), add(splat(ONE), exp2(mul(x, splat(-LOG2_E)))))

    @inline
    def prepare(op, head, token, rows, factors):
        (
            r,
            r_stride,
            w,
            w_stride,
            k,
            k_stride,
            v,
            v_stride,
            a,
            a_stride,
            first,
            first_stride,
            gate,
            gate_stride,
            weights,
            heads,
            dim,
        ) = arguments(op)
        row, at = dim * 4, head * dim * 4
        r, w, k, v = r + token * r_stride + at, w + token * w_stride + at, k + token * k_stride + at, v + token * v_stride + at
        a, early, gate = a + token * a_stride + at, first + token * first_stride + at, gate + token * gate_stride + at
        k_k, k_a, r_k = weights + at, weights + heads * row + at, weights + 2 * heads * row + at
        total, taken, low = zero(), zero(), splat(ONE)
        for j in range(0, row, 32):
            x = mul(load(k, j), load(k_k, j))
            total = fma(x, x, total)
        inverse = splat(ONE / max(np.sqrt(hsum(total)), shortest))
        for j in range(0, row, 32):
            rate, key, read, factor = sigmoid(load(a, j)), load(k, j), load(r, j), load(factors, j)
            kk = mul(mul(key, load(k_k, j)), inverse)
            key = mul(key, fma(sub(rate, splat(ONE)), load(k_a, j), splat(ONE)))
            taken = fma(mul(read, key), load(r_k, j), taken)
            store(rows, FINDS * row + j, mul(kk, factor))
            factor = mul(factor, exp2(mul(splat(decay), sigmoid(load(w, j)))))
            low = smaller(factor, low)
            over = div(splat(ONE), factor)
            store(rows, TAKES * row + j, mul(mul(kk, rate), over))
            store(rows, KEYS * row + j, mul(key, over))
            store(rows, READS * row + j, mul(read, factor))
            store(rows, FACTORS * row + j, factor)
            value = load(v, j)
            if first:
                value = fma(sub(load(early, j), value), sigmoid(load(gate, j)), value)
            store(rows, VALUES * row + j, value)
        store_f32(rows, SUM * row, hsum(taken))
        return least(low)

    return prepare


def _find(isa: Isa, vectors: int) -> Any:
    """The value that a block's rows hold for a key: (rows, key, found, dim)."""

    def emit(e: Generic, rows: Any, key: Any, found: Any, dim: Any) -> None:
        b, totals = e.b, _totals(e, vectors)
        with e.loop(dim) as index:
            by = e.splat(e.load(F32, e.at(key, index, 4)))
            for i, total in enumerate(totals):
                row = e.load(V8F, e.at(rows, index, 32 * vectors), 32 * i)
                b.store(e.fma(by, row, b.load(total)), total)
        for i, total in enumerate(totals):
            e.store(b.load(total), found, 32 * i)

    return isa.make("find", types.void, (types.int64,) * 4, emit)


def _change(isa: Isa, vectors: int) -> Any:
    """A token's update of a block, the receptance's output, and the value for the next key:
    (before, after, scratch, found, next key, values, out, dim).
    """

    def emit(e: Generic, before: Any, after: Any, *rest: Any) -> None:
        _changed(e, V8F, [(e.b.add(before, 32 * i), e.b.add(after, 32 * i)) for i in range(vectors)], 32 * vectors, *rest)

    return isa.make("change", types.void, (types.int64,) * 8, emit)


def _change_two(isa: Isa) -> Any:
    """`_change` of two wide blocks side by side, in vectors of sixteen lanes: sums wait for themselves, so four go at once."""

    def emit(e: Generic, before: Any, after: Any, *rest: Any) -> None:
        next_block = e.b.mul(rest[-1], 64)
        _changed(e, V16F, [(before, after), (e.b.add(before, next_block), e.b.add(after, next_block))], 64, *rest)

    return isa.make("change_two", types.void, (types.int64,) * 8, emit)


def _changed(
    e: Generic,
    kind: Any,
    states: Sequence[tuple[Any, Any]],
    row_bytes: int,
    scratch: Any,
    found: Any,
    key: Any,
    values: Any,
    out: Any,
    dim: Any,
) -> None:
    """For some vectors of columns, each given by where its first row is before and after."""
    b, n, size = e.b, len(states), 4 * kind.count
    found_next, reads = _totals(e, n, kind), _totals(e, n, kind)
    lost = [e.b.fsub(0.0, e.load(kind, found, size * i)) for i in range(n)]
    value = [e.load(kind, values, size * i) for i in range(n)]
    with e.loop(dim) as index:
        at, row = b.mul(index, 4), b.mul(index, row_bytes)

        def of_scratch(number: int) -> Any:
            return e.splat(e.load(F32, e.at(b.add(scratch, at), dim, 4 * number)), kind.count)

        takes, keys, read = of_scratch(TAKES), of_scratch(KEYS), of_scratch(READS)
        finds = e.splat(e.load(F32, b.add(key, at)), kind.count)
        for i, (before, after) in enumerate(states):
            s = e.load(kind, b.add(before, row))
            s = e.fma(takes, lost[i], e.fma(keys, value[i], s))
            e.store(s, b.add(after, row))
            b.store(e.fma(read, s, b.load(reads[i])), reads[i])
            b.store(e.fma(finds, s, b.load(found_next[i])), found_next[i])
    for i in range(n):
        e.store(b.load(reads[i]), out, size * i)
        e.store(b.load(found_next[i]), found, size * i)


def _totals(e: Generic, n: int, kind: Any = V8F) -> list[Any]:
    """Accumulators."""
    return [cgutils.alloca_once_value(e.b, e.constant(kind, 0.0)) for _ in range(n)]


def _norm(isa: Isa) -> Any:
    """A layer norm of a head's row, in place."""
    load, store, splat, add, sub, mul, fma = isa("load_f32x8 store_f32x8 splat_f32x8 add_f32x8 sub_f32x8 mul_f32x8 fma_f32x8")
    zero, hsum = isa("zero_f32x8 hsum_f32x8")

    @inline
    def norm(y, scale, bias, dim, eps):
        total, squares, row = zero(), zero(), dim * 4
        for j in range(0, row, 32):
            total = add(total, load(y, j))
        centre = splat(hsum(total) / np.float32(dim))
        for j in range(0, row, 32):
            away = sub(load(y, j), centre)
            squares = fma(away, away, squares)
        factor = splat(ONE / np.sqrt(hsum(squares) / np.float32(dim) + eps))
        for j in range(0, row, 32):
            store(y, j, fma(mul(sub(load(y, j), centre), factor), load(scale, j), load(bias, j)))

    return norm
