"""Products of F32, F16 and BF16 weights with f32 activations: out = x W' (+ bias) (+ residual), for rows of any length."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels._inline import inline
from edgellm.backends.cpu.kernels._prefetch import prefetch
from edgellm.backends.cpu.kernels.output import put
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import F32, I16, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.backends.cpu.words import MATMUL

COLUMNS = 3                                      # of a tile: with four accumulators each they fit sixteen registers
ROWS = 16                                        # that stay in the cache while all columns pass
LANES, ACCUMULATORS = 8, 4
STEP = LANES * ACCUMULATORS
TILE_ROWS, TILE_COLUMNS = 4, 2                   # of which one accumulator is summed after the other
LONGEST = 1024                                   # elements of rows in tiles: both must stay in the first-level cache
TILED_COLUMNS, TILED_BYTES = 12, 1 << 18         # of columns and of rows that stay in the second-level cache
i64, f32 = types.int64, types.float32
CONVERT: dict[str, Callable[[Generic, Any], Any]] = {
    "F32": lambda e, x: x,
    "F16": lambda e, x: e.from_f16(x),
    "BF16": lambda e, x: e.from_bf16(x),
}
ELEMENT: dict[str, Any] = {"F32": F32, "F16": I16, "BF16": I16}
BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64 = isa.load_i64
    one = isa.make("row_by_one", f32, (i64, i64, i64), lambda e, w, k, x: _row_dots(e, variant, w, k, [x])[0])
    three = isa.make("row_by_three", types.UniTuple(f32, COLUMNS), (i64,) * (2 + COLUMNS),
                     lambda e, w, k, *xs: _row_dots(e, variant, w, k, xs))
    store = isa.make("put", types.void, (f32, i64, i64, i64), put)
    tile = isa.make("tile", types.void, (i64,) * 8, lambda e, *args: _tile(e, variant, *args))
    arguments = MATMUL.reader(isa, "step weights row_bytes n k x x_stride count")

    of_product = MATMUL.reader(isa, "weights row_bytes k x x_stride")

    @inline
    def untiled(op, first, end, begin, columns):
        """Rows and columns from the first until the end of each, by threes as far as they go."""
        w, row_bytes, k, x, x_stride = of_product(op)
        threes = begin + (columns - begin) // COLUMNS * COLUMNS
        for row0 in range(first, end, ROWS):
            for c in range(begin, threes, COLUMNS):
                x0, x1, x2 = x + c * x_stride, x + (c + 1) * x_stride, x + (c + 2) * x_stride
                for row in range(row0, min(row0 + ROWS, end)):
                    y0, y1, y2 = three(w + row * row_bytes, k, x0, x1, x2)
                    store(y0, op, row, c)
                    store(y1, op, row, c + 1)
                    store(y2, op, row, c + 2)
            for row in range(row0, min(row0 + ROWS, end)):
                for c in range(threes, columns):
                    store(one(w + row * row_bytes, k, x + c * x_stride), op, row, c)

    def matmul(op, ith, nth):
        step, w, row_bytes, n, k, x, x_stride, count = arguments(op)
        columns = load_i64(step, count * 8)
        first, end = n * ith // nth, n * (ith + 1) // nth
        tiled = columns // TILE_COLUMNS * TILE_COLUMNS if k % STEP == 0 and k <= LONGEST else 0
        left = first + (end - first) // TILE_ROWS * TILE_ROWS
        together = max(1, TILED_BYTES // (TILE_ROWS * row_bytes)) * TILE_ROWS
        for row0 in range(first, left, together):
            for column0 in range(0, tiled, TILED_COLUMNS):
                for row in range(row0, min(row0 + together, left), TILE_ROWS):
                    for c in range(column0, min(column0 + TILED_COLUMNS, tiled), TILE_COLUMNS):
                        tile(w + row * row_bytes, row_bytes, k, x + c * x_stride, x_stride, op, row, c)
        untiled(op, first, left, tiled, columns)
        untiled(op, left, end, 0, columns)

    return matmul


def _tile(e: Generic, name: str, weights: Any, row_bytes: Any, k: Any, x: Any, x_stride: Any, record: Any, row: Any,
          column: Any) -> None:
    """Some rows by some columns, stored: for each the operations of `_row_dots` in their order, where k is a multiple of STEP."""
    b, size = e.b, BYTES[name]
    rows = [b.add(weights, b.mul(row_bytes, I64(i))) for i in range(TILE_ROWS)]
    xs = [b.add(x, b.mul(x_stride, I64(i))) for i in range(TILE_COLUMNS)]
    cells = [(i, j) for j in range(TILE_COLUMNS) for i in range(TILE_ROWS)]
    parts = [{cell: cgutils.alloca_once_value(b, e.constant(V8F, 0.0)) for cell in cells} for _ in range(ACCUMULATORS)]
    for part, totals in enumerate(parts):
        with cgutils.for_range(b, b.sdiv(k, I64(STEP))) as loop:
            index = b.add(b.mul(loop.index, I64(STEP)), I64(part * LANES))
            values = [e.load(V8F, b.add(at, b.mul(index, I64(4)))) for at in xs]
            for i, at in enumerate(rows):
                w = CONVERT[name](e, e.load(vector(ELEMENT[name], LANES), b.add(at, b.mul(index, I64(size)))))
                for j, value in enumerate(values):
                    b.store(e.fma(w, value, b.load(totals[i, j])), totals[i, j])
    p, q, r, s = parts
    sums = {cell: b.fadd(b.fadd(b.load(p[cell]), b.load(q[cell])), b.fadd(b.load(r[cell]), b.load(s[cell]))) for cell in cells}
    y = b.fadd(e.sum_of_each([sums[cell] for cell in cells]), e.constant(V8F, 0.0))
    for j in range(TILE_COLUMNS):
        put(e, e.pick(y, range(j * TILE_ROWS, (j + 1) * TILE_ROWS)), record, row, b.add(column, I64(j)))


def _row_dots(e: Generic, name: str, weights: Any, k: Any, columns: Any) -> list[Any]:
    """One row by some columns; the same operations in the same order for each column, however many there are."""
    b = e.b
    totals = [[cgutils.alloca_once_value(b, e.constant(V8F, 0.0)) for _ in range(ACCUMULATORS)] for _ in columns]
    rest = [cgutils.alloca_once_value(b, F32(0.0)) for _ in columns]

    def add(index: Any, lanes: int, sums: list[Any]) -> None:
        """Elements from `index` on to the sums, one per column."""
        kind = vector(ELEMENT[name], lanes)
        w = CONVERT[name](e, e.load(kind, b.add(weights, b.mul(index, I64(BYTES[name])))))
        for x, total in zip(columns, sums, strict=True):
            value = e.load(vector(F32, lanes), b.add(x, b.mul(index, I64(4))))
            old = b.load(total)
            b.store(e.fma(w, value, old) if lanes > 1 else b.fadd(old, e.lane(b.fmul(w, value), 0)), total)

    with cgutils.for_range(b, b.sdiv(k, I64(STEP))) as loop:
        index = b.mul(loop.index, I64(STEP))
        prefetch(e, b.add(weights, b.mul(index, I64(BYTES[name]))), STEP * BYTES[name])
        for part in range(ACCUMULATORS):
            add(b.add(index, I64(part * LANES)), LANES, [column[part] for column in totals])
    done = b.mul(b.sdiv(k, I64(STEP)), I64(STEP))
    eights = b.sdiv(b.sub(k, done), I64(LANES))
    with cgutils.for_range(b, eights) as loop:
        add(b.add(done, b.mul(loop.index, I64(LANES))), LANES, [column[0] for column in totals])
    done = b.add(done, b.mul(eights, I64(LANES)))
    with cgutils.for_range(b, b.sub(k, done)) as loop:
        add(b.add(done, loop.index), 1, rest)
    results = []
    for column, tail in zip(totals, rest, strict=True):
        p, q, r, s = (b.load(each) for each in column)
        results.append(b.fadd(e.fold(b.fadd(b.fadd(p, q), b.fadd(r, s)), b.fadd), b.load(tail)))
    return results
