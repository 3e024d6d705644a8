"""Adds the product of an adapter to that of its matrix: out = base + low W, each number of `low` times a row of W."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul.matmul_float import BYTES, CONVERT, ELEMENT
from edgellm.backends.cpu.ops.dense import LOW_RANK
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, vector
from edgellm.backends.cpu.simd.generic import Generic

LANES, VECTORS = 8, 4  # so many outputs go together: products of 16 columns took 6 times as long
i64 = types.int64


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64 = isa.load_i64
    wide, narrow, single = (
        isa.make(
            f"low_rank_{vectors}x{lanes}",
            types.void,
            (i64,) * 6,
            lambda e, *args, lanes=lanes, vectors=vectors: _add(e, variant, lanes, vectors, *args),
        )
        for lanes, vectors in ((LANES, VECTORS), (LANES, 1), (1, 1))
    )
    arguments = LOW_RANK.reader(isa, "step weights row_bytes n ranks low low_stride base base_stride out out_stride count")
    size, together = BYTES[variant], LANES * VECTORS

    def low_rank(op, ith, nth):
        step, weights, row_bytes, n, ranks, low, low_stride, base, base_stride, out, out_stride, count = arguments(op)
        first, end = n * ith // nth, n * (ith + 1) // nth
        for row in range(load_i64(step, count * 8)):
            x, source, target, j = low + row * low_stride, base + row * base_stride, out + row * out_stride, first
            while j + together <= end:
                wide(weights + j * size, row_bytes, ranks, x, source + j * 4, target + j * 4)
                j += together
            while j + LANES <= end:
                narrow(weights + j * size, row_bytes, ranks, x, source + j * 4, target + j * 4)
                j += LANES
            while j < end:
                single(weights + j * size, row_bytes, ranks, x, source + j * 4, target + j * 4)
                j += 1

    return low_rank


def _add(
    e: Generic, name: str, lanes: int, vectors: int, weights: Any, row_bytes: Any, ranks: Any, low: Any, base: Any, out: Any
) -> None:
    """The products of some outputs, summed in the order of the ranks, and then added to what is there."""
    b, kind = e.b, vector(F32, lanes)
    totals = [cgutils.alloca_once_value(b, e.constant(kind, 0.0)) for _ in range(vectors)]
    with e.loop(ranks) as index:
        factor = e.splat(e.load(F32, e.at(low, index, 4)), lanes)
        row = e.at(weights, index, row_bytes)
        for part, total in enumerate(totals):
            w = CONVERT[name](e, e.load(vector(ELEMENT[name], lanes), row, part * lanes * BYTES[name]))
            b.store(e.fma(w, factor, b.load(total)), total)
    for part, total in enumerate(totals):
        at = part * lanes * 4
        e.store(b.fadd(e.load(kind, base, at), b.load(total)), out, at)
