"""Products of weights whose rows lie interleaved in memory (interleave.py): `matmul`, with the same results bit by bit."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from edgellm.backends.cpu.kernels import interleaved, output
from edgellm.backends.cpu.kernels._inline import outline
from edgellm.backends.cpu.kernels._partition import lanes, tiles
from edgellm.backends.cpu.kernels.matmul import REREAD_BYTES, many_columns
from edgellm.backends.cpu.kernels.superblock import BLOCKS, shape_of
from edgellm.backends.cpu.simd import Isa, Vec
from edgellm.backends.cpu.traits import PANEL_ROWS, TILE_COLUMNS
from edgellm.backends.cpu.words import MATMUL

i64, void = types.int64, types.void


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    few, many = _few_columns(variant, isa), many_columns(variant, isa, interleaved=True)
    load_i64, tile_rows = isa.load_i64, isa.level.tile_rows
    arguments, tiled_rows = MATMUL.reader(isa, "step n count row_bytes"), tiles(isa)

    def matmul(op, ith, nth):
        step, n, count, row_bytes = arguments(op)
        columns, groups = load_i64(step, count * 8), n // tile_rows
        tiled = tiled_rows(columns)
        first, end = groups * ith // nth, groups * (ith + 1) // nth
        at_once = max(1, end - first)
        if 0 < tiled < columns:                  # the other columns read the same rows while the second-level cache has them
            at_once = max(1, REREAD_BYTES // (PANEL_ROWS * row_bytes)) * (PANEL_ROWS // tile_rows)
        for group in range(first, end, at_once):
            last = min(group + at_once, end)
            if tiled > 0:
                many(op, group, last, end, tiled)
            if tiled < columns:
                few(op, group, last, tiled, columns)

    return matmul


def _few_columns(variant: str, isa: Isa) -> Any:
    """Some groups of rows by columns that lie in rows."""
    shape, rows, size = shape_of(variant, isa.level), isa.level.tile_rows, 4 * isa.level.tile_rows * BLOCKS
    vector, in_lanes = Vec("f32", rows), lanes(isa)
    arguments = MATMUL.reader(isa, "weights row_bytes k x x_stride scratch")
    one = isa.make("one", vector, (i64,) * 3, lambda e, w, k, x: interleaved.accumulate(e, variant, shape, w, k, [x])[0])
    two = isa.make("two", types.UniTuple(vector, 2), (i64,) * 4,
                   lambda e, w, k, *x: interleaved.accumulate(e, variant, shape, w, k, x))
    several = isa.make("several", void, (i64,) * 6, lambda e, *a: interleaved.accumulate_columns(e, variant, shape, *a))
    summed, put = (isa.make("summed", vector, (i64,), interleaved.summed),
                   isa.make("put", void, (vector, i64, i64, i64), output.put))

    def few(op, first, end, from_column, columns):
        weights, row_bytes, k, x, x_stride, totals = arguments(op)
        for group in range(first, end):
            row, w = group * rows, weights + group * rows * row_bytes
            if in_lanes(columns):
                for c in range(from_column, columns, TILE_COLUMNS):
                    n = min(TILE_COLUMNS, columns - c)
                    several(w, k, x + c * x_stride, x_stride, n, totals)
                    for i in range(n):
                        put(summed(totals + i * size), op, row, c + i)
            elif columns == 2:
                a, b = two(w, k, x, x + x_stride)
                put(a, op, row, 0)
                put(b, op, row, 1)
            elif columns == 1:
                put(one(w, k, x), op, row, 0)

    return outline(few)
