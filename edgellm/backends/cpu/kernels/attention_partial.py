"""Partial sums of attention: weighted values, maximum and sum of weights of some queries, merged in a fixed order.

Layout for `rows` queries of `dim` values, f32: (rows + 1) x dim weighted values; then per query (and one more) eight floats of
which the first is the maximum, and eight that add up to the sum of weights. The extra row is for an odd query's copy. An empty
partial (maximum LOWEST) changes nothing, bit by bit.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any  # what a Numba function is to the type checker

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels._inline import inline, outline
from edgellm.backends.cpu.simd import Isa

LOWEST = np.float32(-3.0e38)                     # below any score, yet finite: differences of maxima stay numbers
CHUNK, BLOCK = abi.ATTENTION_CHUNK, abi.ATTENTION_BLOCK


def count(isa: Isa) -> Any:
    """Partials of one token: one for its sinks, if it sees any, and one per chunk that its window touches."""
    load_i32 = isa.load_i32

    @inline
    def places(span, sinks):
        first = load_i32(span, 8) - sinks
        end = first + load_i32(span, 12)
        return np.int64(load_i32(span, 4) > 0) + (end + CHUNK - 1) // CHUNK - first // BLOCK * BLOCK // CHUNK

    return places


def clear(isa: Isa) -> Any:
    store, store_f32, zero = isa.store_f32x8, isa.store_f32, isa.zero_f32x8

    @outline
    def clear(part, rows, dim):
        n = rows * (dim + 16)
        for eight in range(n // 8):
            store(part, eight * 32, zero())
        for j in range(n // 8 * 8, n):
            store_f32(part, j * 4, np.float32(0))
        for r in range(rows):
            store_f32(part, (rows * dim + r * 16) * 4, LOWEST)

    return clear


def combine(isa: Isa) -> Any:
    """Add one partial to another."""
    load, store, fma, mul, splat, exp = (isa.load_f32x8, isa.store_f32x8, isa.fma_f32x8, isa.mul_f32x8, isa.splat_f32x8,
                                         isa.exp_f32x8)
    load_f32, store_f32, first = isa.load_f32, isa.store_f32, isa.first_f32x8

    @outline
    def combine(whole, part, rows, dim):
        for r in range(rows):
            stats = (rows * dim + r * 16) * 4
            ours, theirs = load_f32(whole, stats), load_f32(part, stats)
            if theirs == LOWEST:
                continue
            top = max(ours, theirs)
            a, b = exp(splat(ours - top)), exp(splat(theirs - top))
            j = 0
            while j + 8 <= dim:
                at = (r * dim + j) * 4
                store(whole, at, fma(load(part, at), b, mul(load(whole, at), a)))
                j += 8
            while j < dim:
                at = (r * dim + j) * 4
                store_f32(whole, at, load_f32(part, at) * first(b) + load_f32(whole, at) * first(a))
                j += 1
            store_f32(whole, stats, top)
            store(whole, stats + 32, fma(load(part, stats + 32), b, mul(load(whole, stats + 32), a)))

    return combine


def finish(isa: Isa) -> Any:
    """Write the weighted means of n queries from `first` on to `out`."""
    load, store, mul, splat, hsum = isa.load_f32x8, isa.store_f32x8, isa.mul_f32x8, isa.splat_f32x8, isa.hsum_f32x8
    load_f32, store_f32 = isa.load_f32, isa.store_f32

    @outline
    def finish(part, rows, first, n, dim, out):
        for r in range(n):
            source = (first + r) * dim * 4
            inverse = np.float32(1) / hsum(load(part, (rows * dim + (first + r) * 16 + 8) * 4))
            j = 0
            while j + 8 <= dim:
                store(out, (r * dim + j) * 4, mul(load(part, source + j * 4), splat(inverse)))
                j += 8
            while j < dim:
                store_f32(out, (r * dim + j) * 4, load_f32(part, source + j * 4) * inverse)
                j += 1

    return finish


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    """The second half of a step with one token: `merge` adds up what the threads have left. Records as in `ops.attention`."""
    load_i64 = isa.load_i64
    places, clear_partial, add, write = count(isa), clear(isa), combine(isa), finish(isa)

    def merge(op, ith, nth):
        n_kv, dim, out, spans = load_i64(op, 88), load_i64(op, 104), load_i64(op, 48), load_i64(op, 64)
        partials, head_bytes, partial_bytes = load_i64(op, 136), load_i64(op, 144), load_i64(op, 152)
        queries, n = load_i64(op, 80) // n_kv, places(spans, load_i64(op, 120))
        for head in range(n_kv * ith // nth, n_kv * (ith + 1) // nth):
            first = partials + head * head_bytes
            whole = first + n * partial_bytes
            clear_partial(whole, queries + 1, dim)
            for place in range(n):
                add(whole, first + place * partial_bytes, queries + 1, dim)
            write(whole, queries + 1, 0, queries, dim, out + head * queries * dim * 4)

    return {"merge": merge}[variant]
