"""A few columns, as IR, at ISA levels with `lanes_from`: a superblock's weights, turned so that a lane has a block, by each of
them.

The sums are those of superblock.py, operation by operation. Vector g of a superblock has quants 4 g to 4 g + 3 of its eight blocks,
so that products need no sums across lanes; weights are turned once for all columns, and rows of activations lie that way from the
start. Vectors of sixteen lanes have two columns side by side, as the activations lie, and weights twice; of an odd number of
columns the last one is alone. Two rows at once then share the loads of activations.
"""
from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels._prefetch import AHEAD, LINE
from edgellm.backends.cpu.kernels.superblock import (
    BLOCKS,
    Shape,
    mins_of,
    open_superblock,
    raw_superblock_bytes,
    start_of,
    sums_of,
    weighed,
)
from edgellm.backends.cpu.kernels.unpack import BLOCK_OF, Superblock
from edgellm.backends.cpu.simd.base import F32, I1, I8, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic, Load
from edgellm.backends.cpu.traits import BLOCK, SUPERBLOCK, TRAITS

Value = Any                                      # ir.Value: llvmlite has no static types
LANE = tuple(BLOCK_OF.index(block) for block in range(BLOCKS))       # block -> its lane
COLUMNS = 16                                     # at most at a time; their sums are COLUMNS x 8 rows x 8 blocks
ROWS = 8
FITS = 3 << 12                                   # bytes of activations that stay in a first-level cache beside a row


def accumulate(e: Generic, name: str, shape: Shape, weights: Value, row_bytes: Value, rows: Value, k: Value, x: Value,
               x_stride: Value, columns: Value, totals: Value) -> None:
    """Up to eight rows by some columns: to `totals` eight f32x8 for each column, a vector per row with a lane per block; those of
    columns side by side in turns.

    Rows run through one after the other while the activations stay in the first-level cache; else superblock by superblock.
    """
    b, raw_superblock = e.b, raw_superblock_bytes(name)
    whole, superblocks = b.sdiv(k, I64(SUPERBLOCK)), b.sdiv(b.add(k, I64(SUPERBLOCK - 1)), I64(SUPERBLOCK))
    section, scales = b.mul(superblocks, I64(BLOCKS * 4)), b.mul(superblocks, I64(SUPERBLOCK))
    is_small = b.icmp_signed("<=", b.mul(columns, b.add(scales, b.mul(section, I64(2)))), I64(FITS))
    few, wide, narrow = e.lane_rows, e.lane_columns, e.of_one_column()
    groups = b.sdiv(b.add(rows, I64(few - 1)), I64(few))
    at_once = b.select(is_small, I64(1), groups)
    ahead = b.select(is_small, I64(AHEAD), b.mul(rows, row_bytes))
    zeros, paired = _zeros(e), b.sub(columns, b.srem(columns, I64(wide)))

    def opened(row: Value, index: Value, last: Value | None) -> _Opened:
        at = b.add(weights, b.add(b.mul(row, row_bytes), b.mul(index, I64(raw_superblock))))
        for line in range(0, raw_superblock, LINE):
            e.prefetch(b.add(at, ahead), line, to_first=False)
        return _Opened(narrow, shape, open_superblock(narrow, name, at, last), e if wide > 1 else None)

    def add_superblock(group: Value, index: Value, last: Value | None) -> None:
        first, is_first = b.mul(group, I64(few)), b.icmp_signed("==", index, I64(0))
        rows_opened = [opened(first, index, last)]
        if few == 2:                             # of an odd number of rows the last one twice: sums have room for eight
            second = b.add(first, I64(1))
            rows_opened.append(opened(b.select(b.icmp_signed("<", second, rows), second, first), index, last))

        def by_columns(some: Sequence[_Opened], begin: Value, end: Value) -> None:
            n = some[0].times
            quants, numbers = b.mul(index, I64(SUPERBLOCK * n)), b.mul(b.add(scales, b.mul(index, I64(BLOCKS * 4))), I64(n))
            place = b.add(totals, b.mul(first, I64(32 * n)))
            _by_columns(some, quants, numbers, x, x_stride, b.mul(section, I64(n)), begin, end, b.select(is_first, zeros, place),
                        b.select(is_first, I64(0), I64(ROWS * 32)), place)

        by_columns(rows_opened, I64(0), paired)
        if wide > 1:
            with b.if_then(b.icmp_signed("<", paired, columns)):
                by_columns([each.once(narrow) for each in rows_opened], paired, columns)

    with cgutils.for_range(b, b.sdiv(groups, at_once)) as group:
        first = b.mul(group.index, at_once)
        with cgutils.for_range(b, whole) as superblock, cgutils.for_range(b, at_once) as row:
            add_superblock(b.add(first, row.index), superblock.index, None)
        if TRAITS[name].block != SUPERBLOCK:
            rest = b.srem(k, I64(SUPERBLOCK))
            last = b.sub(b.sdiv(rest, I64(TRAITS[name].block)), I64(1))
            with b.if_then(b.icmp_signed(">", rest, I64(0))), cgutils.for_range(b, at_once) as row:
                add_superblock(b.add(first, row.index), whole, last)


def _zeros(e: Generic) -> Value:
    kind = ir.ArrayType(I8, 32 * e.lane_columns * e.lane_rows)
    constant = cgutils.global_constant(e.b.module, "no_totals", ir.Constant(kind, bytearray(kind.count)))
    constant.linkage, constant.align = "internal", kind.count
    return e.b.ptrtoint(constant, I64)


def _by_columns(rows: Sequence[_Opened], quants: Value, numbers: Value, x: Value, x_stride: Value, section: Value, begin: Value,
                end: Value, before: Value, before_stride: Value, after: Value) -> None:
    """Totals of columns `begin` to `end` + the products of opened superblocks of some rows with them. `quants`, `numbers`: where
    columns that are side by side have what belongs to the superblock; `before`, `after`: totals of column 0.
    """
    e, times = rows[0].e, rows[0].times
    b, kind = e.b, vector(F32, BLOCKS * times)

    def step(first: Value, n: int) -> None:
        places = [b.add(first, I64(times * c)) for c in range(n)]
        columns = [b.add(x, b.mul(place, x_stride)) for place in places]
        addresses = [(b.add(column, quants), b.add(column, numbers)) for column in columns]
        totals = [[e.load(kind, b.add(before, b.mul(place, before_stride)), 32 * times * row) for place in places]
                  for row in range(len(rows))]
        for row, values in enumerate(_products(rows, totals, addresses, section)):
            for place, value in zip(places, values, strict=True):
                e.store(value, b.add(after, b.mul(place, I64(ROWS * 32))), 32 * times * row)

    at_once = 2 if rows[0].negatives else 1      # signs and sizes of quants are more than registers hold
    steps = b.sdiv(b.sub(end, begin), I64(times))
    with cgutils.for_range(b, b.sdiv(steps, I64(at_once))) as loop:
        step(b.add(begin, b.mul(loop.index, I64(times * at_once))), at_once)
    if at_once == 2:
        with b.if_then(b.trunc(steps, I1)):
            step(b.sub(end, I64(times)), 1)


class _Opened:
    """A row's superblock, turned, with what its products start from; with a `wide` ISA level as often as that has columns side by
    side.
    """

    def __init__(self, e: Generic, shape: Shape, superblock: Superblock, wide: Generic | None = None) -> None:
        self.e, self.shape, self.times = wide or e, shape, wide.lane_columns if wide else 1
        found = superblock.turned(self.e)
        quants = self._repeated(turned(e, superblock, shape.whole)) if found is None else self._hidden(found)
        self.parts = [quants] if shape.n_scales == 1 else [quants[:4], quants[4:]]       # that each scale is of
        mins = mins_of(e, superblock.mins)
        self.scales, self.mins, self.factor = (self._repeated([e.pick(value, BLOCK_OF) for value in values])
                                               for values in (superblock.scales, mins, superblock.factor))
        self.negatives = [e.negatives(part) for part in self.parts] if shape.signed and e.sign_sums else None

    def _repeated(self, values: Sequence[Value]) -> list[Value]:
        return self._hidden([self.e.join_all([value] * self.times) for value in values])

    def _hidden(self, values: Sequence[Value]) -> list[Value]:
        """Values of which LLVM does not know that `once` would also have them narrow: in registers of their own."""
        return [self.e.opaque(value) if self.times > 1 else value for value in values]

    def once(self, e: Generic) -> _Opened:
        """For one column alone: the registers' first halves."""
        other = copy.copy(self)
        other.e, other.times = e, 1
        *other.parts, other.scales, other.mins, other.factor = (
            [e.pick(value, range(value.type.count // self.times)) for value in values]
            for values in (*self.parts, self.scales, self.mins, self.factor))
        return other


def _products(rows: Sequence[_Opened], totals: Sequence[Sequence[Value]], columns: Sequence[tuple[Value, Value]],
              section: Value) -> list[list[Value]]:
    """Of each row, its totals + the products with some columns: addresses of their quants and of the d of their blocks."""
    e, shape, times = rows[0].e, rows[0].shape, rows[0].times

    def numbers(element: Any, at: Value, index: int = 0) -> Value:
        return e.load(vector(element, BLOCKS * times), e.b.add(at, e.b.mul(section, I64(index))))

    def numbers_of(at: Value) -> Callable[[Any, int], Value]:
        return lambda element, index: numbers(element, at, index)

    dots = []
    for index in range(shape.n_scales):
        starts = [start_of(e, shape, index, shape.offset, numbers_of(at)) for _, at in columns]
        n, size = len(rows[0].parts[index]), BLOCK * times
        x = [[functools.partial(e.load, vector(I8, size), at, size * g) for g in range(index * n, index * n + n)]
             for at, _ in columns]
        dots.append(_dots(rows, index, x, starts))
    sums = [sums_of(e, shape, numbers_of(at)) for _, at in columns]
    d = [numbers(F32, at) for _, at in columns]
    return [[weighed(e, totals[r][c], [dot[r][c] for dot in dots], row.scales, row.mins, sums[c], d[c], row.factor)
             for c in range(len(columns))] for r, row in enumerate(rows)]


def _dots(rows: Sequence[_Opened], index: int, x: Sequence[Sequence[Load]], starts: Sequence[Value | None]) -> list[list[Value]]:
    """Integer sums of the parts `index` of some rows with each of some columns."""
    e, shape = rows[0].e, rows[0].shape
    if len(rows) == 1:
        row, part = rows[0], rows[0].parts[index]
        if row.negatives:
            return [e.dots([functools.partial(e.parted, w) for w in part], x, True, shape.most, [row.negatives[index]] * len(x))]
        return [[e.dot([(w, load()) for w, load in zip(part, column, strict=True)], shape.signed, shape.most, start)
                 for column, start in zip(x, starts, strict=True)]]
    by_column = []
    for column, start in zip(x, starts, strict=True):
        sums = [start] * len(rows)
        for g, load in enumerate(column):
            value = load()
            sums = [e.dot([(row.parts[index][g], value)], shape.signed, shape.most, total)
                    for row, total in zip(rows, sums, strict=True)]
        by_column.append(sums)
    return [list(of_row) for of_row in zip(*by_column, strict=True)]


def turned(e: Generic, superblock: Superblock, whole: bool) -> list[Value]:
    """The eight vectors of a superblock's quants with a lane per block."""
    vectors = []
    for h in (0, 1):
        if whole:                                # a block each; of two, their halves h
            lanes = [*range(16 * h, 16 * h + 16), *range(32 + 16 * h, 48 + 16 * h)]
            rows = [e.shuffle(superblock.quants(q, 0), superblock.quants(q, 1), lanes) for q in range(4)]
        else:
            rows = [superblock.quants(q, h) for q in range(4)]
        vectors += e.turned(rows)
    return vectors


def summed(e: Generic, totals: Value, stride: Value, transposed: Callable[[Generic, list[Value]], list[Value]]) -> Value:
    """A column's eight f32x8, `stride` bytes apart, to one with a lane per row; accumulators are added in order."""
    lanes = transposed(e, [e.load(V8F, e.b.add(totals, e.b.mul(stride, I64(row)))) for row in range(ROWS)])
    return functools.reduce(e.b.fadd, [lanes[LANE[block]] for block in range(BLOCKS)])
