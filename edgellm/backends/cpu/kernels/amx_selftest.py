"""Whether this machine multiplies tiles rightly, and whether that is worth it: what `jit/selftest.py` runs in a process of
its own.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.jit.selftest import CASES, SUMS
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import I8, I32, I64, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, TILE_COLUMNS


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, i64 = isa.load_i64, types.int64
    emit = {"tiles": _tiles, "dots": _dots}[variant]
    repeat = isa.make("repeat", types.void, (i64,) * 4, emit)

    def trial(op, ith, nth):
        repeat(load_i64(op, 8), load_i64(op, 16), load_i64(op, 24), load_i64(op, 32))

    return trial


def _tiles(e: Generic, x: Any, w: Any, out: Any, times: Any) -> None:
    """Each case `times` times, into both halves of its place at `out` in turn."""
    for number, (depth, signed) in enumerate(CASES):
        e.begin_tiles(depth)
        with cgutils.for_range(e.b, times):
            for which in (0, 1):
                e.tile_products(x, BLOCK, w, depth, signed, e.b.add(out, I64((2 * number + which) * SUMS)), which)
        e.end_tiles()


def _dots(e: Generic, x: Any, w: Any, out: Any, times: Any) -> None:
    """As much work by dot products of unsigned quants, in the same places."""
    kind = vector(I32, 16)
    for number, (depth, _) in enumerate(CASES):
        with cgutils.for_range(e.b, times):
            rows = [e.load(vector(I8, 64), w, 64 * g) for g in range(depth // 4)]
            for column in range(2 * TILE_COLUMNS):
                at = BLOCK * (column % TILE_COLUMNS)
                fours = [e.cast(e.splat(e.load(I32, x, at + 4 * g), 16), rows[0].type) for g in range(depth // 4)]
                total = e.dot(list(zip(rows, fours, strict=True)), False, 127, e.constant(kind, 0))
                e.store(total, out, 2 * number * SUMS + 64 * column)
