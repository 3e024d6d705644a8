"""Products of F32, F16 and BF16 weights with f32 activations: out = x W' (+ bias) (+ residual), for rows of any length.

Tiles of four rows by one to three columns: each value is one vector of sums from the first element to the last, and a sum of what
is left of full vectors, however many columns there are. Of long rows a tile takes as many elements at a time as the first-level
cache holds of its rows and columns; its sums wait in memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.matmul.output import put
from edgellm.backends.cpu.kernels.prefetch import LINE
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, I16, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.backends.cpu.traits import FLOAT_COLUMNS, FLOAT_ELEMENTS, FLOAT_ROWS

UNROLLED = 4  # vectors of elements in a turn of the loop
TILE_ROWS, TILE_COLUMNS = 4, 3  # their sums fit sixteen registers; as do those of two columns on ARM
i64, void = types.int64, types.void
CONVERT: dict[str, Callable[[Generic, Any], Any]] = {
    "F32": lambda e, x: x,
    "F16": lambda e, x: e.from_f16(x),
    "BF16": lambda e, x: e.from_bf16(x),
}
ELEMENT: dict[str, Any] = {"F32": F32, "F16": I16, "BF16": I16}
BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, most, element = isa.load_i64, isa.level.float_columns, BYTES[variant]
    lanes = isa.level.lanes
    tile_bytes = TILE_ROWS * most * lanes * 4
    one, two, three = (isa.make(f"tile_{n}", void, (i64,) * 9, lambda e, *a, n=n: _tile(e, variant, n, *a)) for n in (1, 2, most))
    part_two, part_three = (isa.make(f"part_{n}", void, (i64,) * 8, lambda e, *a, n=n: _part(e, variant, n, *a)) for n in (2, most))
    end_two, end_three = (isa.make(f"end_{n}", void, (i64,) * 5, lambda e, *a, n=n: _end(e, n, *a)) for n in (2, most))
    arguments, of_product = MATMUL.reader(isa, "step n k count"), MATMUL.reader(isa, "weights row_bytes k x x_stride scratch")

    @inline
    def width(columns):
        """Columns of the next tile, where so many are left: of four, two and two."""
        return most if columns == most or columns > 4 else min(columns, 2)

    @inline
    def full_tiles(op, first, end, c, columns):
        """Tiles of full rows, from column c on."""
        w, row_bytes, k, x, x_stride, _ = of_product(op)
        while c < columns:
            here, at = width(columns - c), x + c * x_stride
            for row in range(first, end, TILE_ROWS):
                rows, row_at = min(TILE_ROWS, end - row), w + row * row_bytes
                if here == 1:
                    one(row_at, row_bytes, rows, k, at, x_stride, op, row, c)
                elif here == most:
                    three(row_at, row_bytes, rows, k, at, x_stride, op, row, c)
                else:
                    two(row_at, row_bytes, rows, k, at, x_stride, op, row, c)
            c += here

    @inline
    def in_parts(op, first, end, column0, last_column):
        """Tiles with so many elements of all the rows and columns at a time."""
        w, row_bytes, k, x, x_stride, totals = of_product(op)
        for begin in range(0, k, FLOAT_ELEMENTS):
            here, sums = min(FLOAT_ELEMENTS, k - begin), totals
            is_last = begin + here == k
            for row in range(first, end, TILE_ROWS):
                rows, row_at, c = min(TILE_ROWS, end - row), w + row * row_bytes + begin * element, column0
                while c < last_column:
                    columns, at = width(last_column - c), x + c * x_stride + begin * 4
                    if columns == most:
                        part_three(row_at, row_bytes, rows, here, at, x_stride, sums, begin)
                        if is_last:
                            end_three(sums, rows, op, row, c)
                    else:
                        part_two(row_at, row_bytes, rows, here, at, x_stride, sums, begin)
                        if is_last:
                            end_two(sums, rows, op, row, c)
                    c, sums = c + columns, sums + tile_bytes

    def matmul(op, ith, nth):
        step, n, k, count = arguments(op)
        columns = load_i64(step, count * 8)
        groups = (n + TILE_ROWS - 1) // TILE_ROWS
        first, end = groups * ith // nth * TILE_ROWS, min(groups * (ith + 1) // nth * TILE_ROWS, n)
        if columns == 1:  # what comes next may be shared like this
            first, end = n * ith // nth, n * (ith + 1) // nth
        parted = np.int64(0)
        if columns > most and k > FLOAT_ELEMENTS and k % lanes == 0:
            parted = columns if most > 2 else columns // 2 * 2
        for row in range(first, end, FLOAT_ROWS):
            last, c = min(row + FLOAT_ROWS, end), np.int64(0)
            while c < parted:  # one column is not left alone: there are parts of two and more
                here = parted - c if parted - c <= FLOAT_COLUMNS + 1 else FLOAT_COLUMNS
                in_parts(op, row, last, c, c + here)
                c += here
            full_tiles(op, row, last, c, columns)

    return matmul


class _Tile:
    """Sums of some rows, of which only `left` exist, by some columns, and how elements are added to them."""

    def __init__(
        self, e: Generic, name: str, n_columns: int, weights: Any, row_bytes: Any, left: Any, x: Any, x_stride: Any
    ) -> None:
        b, last = e.b, e.b.sub(left, 1)
        self.e, self.name, self.size, self.lanes = e, name, BYTES[name], e.level.lanes
        self.kind = vector(F32, self.lanes)
        index = [b.select(b.icmp_signed("<", i, left), i, last) for i in range(TILE_ROWS)]
        self.rows = [e.at(weights, row_bytes, i) for i in index]
        self.columns = [e.at(x, x_stride, j) for j in range(n_columns)]
        self.cells = [(i, j) for j in range(n_columns) for i in range(TILE_ROWS)]
        self.totals = [cgutils.alloca_once(b, self.kind) for _ in self.cells]

    def add(self, k: Any, ahead: Any) -> None:
        """All full vectors of k elements; the lines `ahead` bytes after theirs are asked for."""
        e, b, step = self.e, self.e.b, self.lanes * UNROLLED
        steps = b.sdiv(k, step)
        with e.loop(steps) as index:
            first = b.mul(index, step)
            for row in self.rows:
                at = e.at(b.add(row, ahead), first, self.size)
                for line in range(0, step * self.size, LINE):
                    e.prefetch(at, line, to_first=False)
            for part in range(UNROLLED):
                self._vector(b.add(first, part * self.lanes))
        done = b.mul(steps, step)
        with e.loop(b.sdiv(b.sub(k, done), self.lanes)) as index:
            self._vector(e.at(done, index, self.lanes))

    def _vector(self, index: Any) -> None:
        e, b = self.e, self.e.b
        values = [e.load(self.kind, e.at(column, index, 4)) for column in self.columns]
        for i, row in enumerate(self.rows):
            wide = self._weights(row, index, self.lanes)
            for value, total in zip(values, self.totals[i::TILE_ROWS], strict=True):
                b.store(e.fma_in_order(wide, value, b.load(total)), total)

    def _weights(self, row: Any, index: Any, lanes: int) -> Any:
        at = self.e.at(row, index, self.size)
        return CONVERT[self.name](self.e, self.e.load(vector(ELEMENT[self.name], lanes), at))

    def rest(self, k: Any) -> list[Any]:
        """The sums of the elements after the last full vector."""
        e, b, one = self.e, self.e.b, vector(F32, 1)
        sums = [cgutils.alloca_once_value(b, F32(0.0)) for _ in self.cells]
        done = b.mul(b.sdiv(k, self.lanes), self.lanes)
        with e.loop(b.sub(k, done)) as loop:
            index = b.add(done, loop)
            values = [e.load(one, e.at(column, index, 4)) for column in self.columns]
            wide = [self._weights(row, index, 1) for row in self.rows]
            for (i, j), total in zip(self.cells, sums, strict=True):
                b.store(b.fadd(b.load(total), e.lane(b.fmul(wide[i], values[j]), 0)), total)
        return [b.load(total) for total in sums]


def _tile(
    e: Generic,
    name: str,
    n_columns: int,
    weights: Any,
    row_bytes: Any,
    left: Any,
    k: Any,
    x: Any,
    x_stride: Any,
    record: Any,
    row: Any,
    column: Any,
) -> None:
    """A tile of full rows, stored."""
    b, tile = e.b, _Tile(e, name, n_columns, weights, row_bytes, left, x, x_stride)
    for total in tile.totals:
        b.store(e.constant(tile.kind, 0.0), total)
    tile.add(k, b.mul(row_bytes, TILE_ROWS))
    _put(e, [b.load(total) for total in tile.totals], tile.rest(k), left, record, row, column)


def _part(
    e: Generic,
    name: str,
    n_columns: int,
    weights: Any,
    row_bytes: Any,
    left: Any,
    k: Any,
    x: Any,
    x_stride: Any,
    sums: Any,
    before: Any,
) -> None:
    """The next k elements of a tile's rows, full vectors of them, to its sums in memory, which the first ones, with nothing
    `before` them, set.
    """
    b = e.b
    tile, is_first = _Tile(e, name, n_columns, weights, row_bytes, left, x, x_stride), b.icmp_signed("==", before, 0)
    for cell, total in enumerate(tile.totals):
        b.store(b.select(is_first, 0.0, e.load(tile.kind, sums, cell * tile.lanes * 4)), total)
    tile.add(k, I64(FLOAT_ELEMENTS * BYTES[name]))
    for cell, total in enumerate(tile.totals):
        e.store(b.load(total), sums, cell * tile.lanes * 4)


def _end(e: Generic, n_columns: int, sums: Any, left: Any, record: Any, row: Any, column: Any) -> None:
    """A tile's sums in memory, stored as its values."""
    cells, lanes = range(TILE_ROWS * n_columns), e.level.lanes
    totals = [e.load(vector(F32, lanes), sums, cell * lanes * 4) for cell in cells]
    _put(e, totals, [F32(0.0) for _ in cells], left, record, row, column)


def _put(e: Generic, totals: Sequence[Any], rests: Sequence[Any], left: Any, record: Any, row: Any, column: Any) -> None:
    """Store a tile's values from its sums, those of `left` rows of each column."""
    b, n_columns = e.b, len(totals) // TILE_ROWS
    if e.level.lanes > 8:
        totals = [b.fadd(e.pick(total, range(8)), e.pick(total, range(8, 16))) for total in totals]
    totals, rests = [*totals, *[e.constant(V8F, 0.0)] * TILE_ROWS], [*rests, *[F32(0.0)] * TILE_ROWS]
    values = [
        b.fadd(e.sum_of_each(totals[first : first + 8]), e.pack(rests[first : first + 8]))
        for first in range(0, n_columns * TILE_ROWS, 8)
    ]
    fours = [e.pick(values[j // 2], range(j % 2 * TILE_ROWS, (j % 2 + 1) * TILE_ROWS)) for j in range(n_columns)]
    with b.if_else(b.icmp_signed(">=", left, TILE_ROWS)) as (all_rows, some):
        with all_rows:
            for j, four in enumerate(fours):
                put(e, four, record, row, b.add(column, j), gates=False)
        with some:
            for j, four in enumerate(fours):
                for i in range(TILE_ROWS - 1):
                    with b.if_then(b.icmp_signed("<", i, left)):
                        put(e, e.lane(four, i), record, b.add(row, i), b.add(column, j), gates=False)
