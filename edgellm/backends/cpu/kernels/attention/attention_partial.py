"""Partial sums of attention: weighted values, maximum and sum of weights of some queries, merged in a fixed order.

Layout for `rows` queries of `dim` values, f32: (rows + 1) x dim weighted values; then per query (and one more) eight floats of
which the first is the maximum, and eight that add up to the sum of weights. The extra row is for an odd query's copy. An empty
partial (maximum LOWEST) changes nothing, bit by bit.
"""

from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.attention import rotation
from edgellm.backends.cpu.kernels.inline import outline
from edgellm.backends.cpu.ops.attention import ATTENTION
from edgellm.backends.cpu.simd import Isa, KernelFunction

LOWEST = np.float32(-3.0e38)  # below any score, yet finite: differences of maxima stay numbers
MERGES_AT = abi.WORK_MERGES_AT * 8
ROTATED_MERGE, LEARNED_MERGE = "_rotated", "_learned"


def clear(isa: Isa) -> Any:
    store, store_f32, zero = isa("store_f32x8 store_f32 zero_f32x8")

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
    load, store, fma, mul, splat, exp = isa("load_f32x8 store_f32x8 fma_f32x8 mul_f32x8 splat_f32x8 exp_f32x8")
    load_f32, store_f32, first = isa("load_f32 store_f32 first_f32x8")

    @outline
    def combine(total, part, rows, dim):
        for r in range(rows):
            stats = (rows * dim + r * 16) * 4
            ours, theirs = load_f32(total, stats), load_f32(part, stats)
            if theirs == LOWEST:
                continue
            top = max(ours, theirs)
            a, b = exp(splat(ours - top)), exp(splat(theirs - top))
            j = 0
            while j + 8 <= dim:
                at = (r * dim + j) * 4
                store(total, at, fma(load(part, at), b, mul(load(total, at), a)))
                j += 8
            while j < dim:
                at = (r * dim + j) * 4
                store_f32(total, at, load_f32(part, at) * first(b) + load_f32(total, at) * first(a))
                j += 1
            store_f32(total, stats, top)
            store(total, stats + 32, fma(load(part, stats + 32), b, mul(load(total, stats + 32), a)))

    return combine


def finish(isa: Isa, *, learned: bool = False, rotated: bool = False) -> Any:
    """Write the weighted means of n queries from `first` on to `out`. `learned`: the weights of a further key, whose value is
    nothing and whose scores (n,) stand at `extra`, count in the mean. `rotated`: values are, so their means are rotated back.
    """
    load, store, mul, splat, hsum = isa("load_f32x8 store_f32x8 mul_f32x8 splat_f32x8 hsum_f32x8")
    load_f32, store_f32, exp, lane = isa("load_f32 store_f32 exp_f32x8 first_f32x8")
    rotate = rotation.rotate(isa)

    @outline
    def finish(part, rows, first, n, dim, out, extra):
        for r in range(n):
            source = (first + r) * dim * 4
            stats = (rows * dim + (first + r) * 16) * 4
            inverse = np.float32(1) / hsum(load(part, stats + 32))
            if learned:
                score, highest = load_f32(extra, r * 4), load_f32(part, stats)
                top = max(score, highest)
                ours, others = lane(exp(splat(score - top))), lane(exp(splat(highest - top)))
                inverse = others / (hsum(load(part, stats + 32)) * others + ours)
            j = 0
            while j + 8 <= dim:
                store(out, (r * dim + j) * 4, mul(load(part, source + j * 4), splat(inverse)))
                j += 8
            while j < dim:
                store_f32(out, (r * dim + j) * 4, load_f32(part, source + j * 4) * inverse)
                j += 1
            if rotated:
                rotate(out + r * dim * 4, dim)

    return finish


def build(variant: str, isa: Isa) -> KernelFunction:
    """The second half of attention: `merge` adds up the partials that chunks of single rows have left, in order."""
    load_i64, clear_partial, add = isa.load_i64, clear(isa), combine(isa)
    write = finish(isa, learned=LEARNED_MERGE in variant, rotated=ROTATED_MERGE in variant)
    WORK, OUT, OUT_STRIDE, N_KV, QUERIES, DIM_V = ATTENTION.offsets("work out out_stride n_kv queries dim_v")
    PARTIALS, PARTIAL_BYTES, SCRATCH, SCRATCH_BYTES, LEARNED = ATTENTION.offsets(
        "partials partial_bytes scratch scratch_bytes learned"
    )

    def merge(op, ith, nth):
        work, n_kv, queries, dim = load_i64(op, WORK), load_i64(op, N_KV), load_i64(op, QUERIES), load_i64(op, DIM_V)
        total, n = load_i64(op, SCRATCH) + ith * load_i64(op, SCRATCH_BYTES), load_i64(work, 8) * n_kv
        for index in range(n * ith // nth, n * (ith + 1) // nth):
            head, item = index % n_kv, work + load_i64(work, MERGES_AT) * 8 + index // n_kv * 24
            clear_partial(total, queries + 1, dim)
            for partial in range(load_i64(item, 8), load_i64(item, 16)):
                add(total, load_i64(op, PARTIALS) + (partial * n_kv + head) * load_i64(op, PARTIAL_BYTES), queries + 1, dim)
            write(
                total,
                queries + 1,
                0,
                queries,
                dim,
                load_i64(op, OUT) + load_i64(item, 0) * load_i64(op, OUT_STRIDE) + head * queries * dim * 4,
                load_i64(op, LEARNED) + head * queries * 4,
            )

    assert variant.removesuffix(LEARNED_MERGE).removesuffix(ROTATED_MERGE) == "merge", variant
    return merge
