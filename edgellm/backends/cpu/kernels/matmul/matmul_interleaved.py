"""Products of weights whose rows lie interleaved in memory (interleave.py): `matmul`, with the same results bit by bit."""

from __future__ import annotations

from typing import Any

from numba import types

from edgellm.backends.cpu.kernels.inline import outline
from edgellm.backends.cpu.kernels.matmul import interleaved, output
from edgellm.backends.cpu.kernels.matmul.many_columns import many_columns
from edgellm.backends.cpu.kernels.matmul.matmul import divided
from edgellm.backends.cpu.kernels.partition import lanes
from edgellm.backends.cpu.kernels.unpack.superblock import BLOCKS, shape_of
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.simd import Isa, KernelFunction, Vec
from edgellm.backends.cpu.traits import TILE_COLUMNS

i64, void = types.int64, types.void


def build(variant: str, isa: Isa) -> KernelFunction:
    return divided(isa, _few_columns(variant, isa), many_columns(variant, isa, interleaved=True), isa.level.tile_rows)


def _few_columns(variant: str, isa: Isa) -> Any:
    """Some groups of rows by columns that lie in rows."""
    shape, rows, size = shape_of(variant, isa.instructions), isa.level.tile_rows, 4 * isa.level.tile_rows * BLOCKS
    vector, in_lanes = Vec("f32", rows), lanes(isa)
    arguments = MATMUL.reader(isa, "weights row_bytes k x x_stride scratch")
    one = isa.make("one", vector, (i64,) * 3, lambda e, w, k, x: interleaved.accumulate(e, variant, shape, w, k, [x])[0])
    two = isa.make(
        "two", types.UniTuple(vector, 2), (i64,) * 4, lambda e, w, k, *x: interleaved.accumulate(e, variant, shape, w, k, x)
    )
    several = isa.make("several", void, (i64,) * 6, lambda e, *a: interleaved.accumulate_columns(e, variant, shape, *a))
    summed, put = (
        isa.make("summed", vector, (i64,), interleaved.summed),
        isa.make("put", void, (vector, i64, i64, i64), output.put),
    )

    def few(op, first, end, from_column, columns):
        weights, row_bytes, k, x, x_stride, totals = arguments(op)
        for row in range(first, end, rows):
            w = weights + row * row_bytes
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
