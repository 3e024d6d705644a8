"""Few columns: raw rows of weights, read one after the other as a sequential stream, eight rows at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.inline import inline, outline
from edgellm.backends.cpu.kernels.matmul import block_lanes, neon_rows, output
from edgellm.backends.cpu.kernels.matmul.row import row_totals
from edgellm.backends.cpu.kernels.partition import lanes
from edgellm.backends.cpu.kernels.unpack.superblock import Shape, shape_of
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.simd import F32X8, Isa
from edgellm.backends.cpu.simd.base import F32, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.backends.cpu.simd.neon import Neon

LANE_COLUMNS, TOTALS_BYTES = block_lanes.COLUMNS, block_lanes.TOTALS_BYTES
i64, f32, void = types.int64, types.float32, types.void


def few_columns(variant: str, isa: Isa) -> Any:
    """Some rows by columns that lie in rows: up to four at a time, or three and more with a lane per block."""
    store, arguments, dots = _store(isa), MATMUL.reader(isa, "weights row_bytes k x x_stride"), _dots(variant, isa)
    with_lanes, in_lanes = isa.level.few_columns == "lanes", lanes(isa)
    one, two, four = dots(1), dots(2), None if with_lanes else dots(4)
    by_lanes, at_once = _block_lanes(variant, isa) if with_lanes else None, 2 if with_lanes else 4

    def few(op, first, end, from_column, columns):
        if at_once == 2 and in_lanes(columns):
            by_lanes(op, first, end, from_column, columns)
            return
        w, row_bytes, k, x, x_stride = arguments(op)
        for row in range(first, end, 8):
            weights, rows, c = w + row * row_bytes, min(8, end - row), from_column
            if at_once == 4:
                while columns - c > 2:  # past the last column that one is computed again, the same
                    d = min(c + 3, columns - 1)
                    x0 = x + c * x_stride
                    a0, a1, a2, a3 = four(weights, row_bytes, rows, k, x0, x0 + x_stride, x0 + 2 * x_stride, x + d * x_stride)
                    store(op, row, rows, c, a0)
                    store(op, row, rows, c + 1, a1)
                    store(op, row, rows, c + 2, a2)
                    if d > c + 2:  # what is stored may take the place of the gate that it was multiplied by
                        store(op, row, rows, d, a3)
                    c = d + 1
            if columns - c == 2:
                b0, b1 = two(weights, row_bytes, rows, k, x + c * x_stride, x + (c + 1) * x_stride)
                store(op, row, rows, c, b0)
                store(op, row, rows, c + 1, b1)
            elif columns - c == 1:
                store(op, row, rows, c, one(weights, row_bytes, rows, k, x + c * x_stride)[0])

    return outline(few)


def _dots(variant: str, isa: Isa) -> Callable[[int], Any]:
    """Functions that multiply eight rows of weights by so many columns."""
    shape = shape_of(variant, isa.instructions)

    def dots(n: int) -> Any:
        return isa.make(
            f"rows_by_{n}",
            types.UniTuple(F32X8, n),
            (i64,) * (4 + n),
            lambda e, w, row_bytes, rows, k, *xs: _rows_dots(e, variant, shape, w, row_bytes, rows, k, xs),
        )

    return dots


def _store(isa: Isa) -> Any:
    """Stores a column's sums of eight rows or fewer."""
    lane = isa.lane_f32x8
    put, put_rows = (isa.make("put", void, (kind, i64, i64, i64), output.put) for kind in (f32, F32X8))

    @inline
    def store(op, row, rows, c, value):
        if rows == 8:
            put_rows(value, op, row, c)
        else:
            for i in range(rows):
                put(lane(value, i), op, row + i, c)

    return store


def _block_lanes(variant: str, isa: Isa) -> Any:
    """Some rows of weights by columns that lie in rows with a lane per block, eight rows by sixteen columns at a time."""
    shape, store = shape_of(variant, isa.instructions), _store(isa)
    arguments = MATMUL.reader(isa, "weights row_bytes k x x_stride scratch")
    accumulate = isa.make("accumulate", void, (i64,) * 8, lambda e, *a: block_lanes.accumulate(e, variant, shape, *a))
    summed = isa.make("summed", F32X8, (i64,), lambda e, totals: block_lanes.summed(e, totals, _transposed))

    @inline
    def by_lanes(op, first, end, from_column, columns):
        w, row_bytes, k, x, x_stride, totals = arguments(op)
        for row in range(first, end, 8):
            rows = min(8, end - row)
            for c in range(from_column, columns, LANE_COLUMNS):
                n = min(LANE_COLUMNS, columns - c)
                accumulate(w + row * row_bytes, row_bytes, rows, k, x + c * x_stride, x_stride, n, totals)
                for i in range(n):
                    store(op, row, rows, c + i, summed(totals + i * TOTALS_BYTES))

    return by_lanes


def _rows_dots(e: Generic, name: str, shape: Shape, weights: Any, row_bytes: Any, rows: Any, k: Any, columns: Any) -> list[Any]:
    """Up to eight rows by some columns: for each an f32x8 with a lane per row. Accumulators are added in order at the end."""
    b = e.b
    spaces = [cgutils.alloca_once(b, vector(F32, 64)) for _ in columns]
    if e.level.few_columns == "neon":
        neon_rows.accumulate(
            cast(Neon, e), name, shape, weights, row_bytes, rows, k, columns, [b.ptrtoint(space, I64) for space in spaces]
        )
    else:
        with e.loop(rows) as index:
            values = row_totals(e, name, shape, e.at(weights, index, row_bytes), k, columns)
            for value, space in zip(values, spaces, strict=True):
                e.store(value, e.at(b.ptrtoint(space, I64), index, 32))
    results = []
    for space in spaces:
        lanes = _transposed(e, [e.load(V8F, b.ptrtoint(space, I64), 32 * row) for row in range(8)])
        results.append(functools.reduce(b.fadd, lanes))
    return results


def _transposed(e: Generic, rows: list[Any]) -> list[Any]:
    """8 x 8 lanes."""
    for distance, low in ((1, [0, 8, 2, 10, 4, 12, 6, 14]), (2, [0, 1, 8, 9, 4, 5, 12, 13]), (4, [0, 1, 2, 3, 8, 9, 10, 11])):
        high = [lane + distance for lane in low]
        mixed = list(rows)
        for i in range(8):
            if not i & distance:
                mixed[i], mixed[i + distance] = (e.shuffle(rows[i], rows[i + distance], lanes) for lanes in (low, high))
        rows = mixed
    return rows
