"""A few columns, as IR, at ISA levels with `lanes_from`: a superblock's weights, turned so that a lane has a block, by each of
them.

The sums are those of superblock.py, operation by operation. Vector g of a superblock has quants 4 g to 4 g + 3 of its eight blocks,
so that products need no sums across lanes; weights are turned once for all columns, and rows of activations lie that way from the
start. Vectors of sixteen lanes have two rows of weights side by side, and activations twice.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels._prefetch import AHEAD, LINE
from edgellm.backends.cpu.kernels.superblock import (
    BLOCKS,
    Shape,
    accumulator_init,
    open_superblock,
    raw_superblock_bytes,
    sums_section,
    weighed,
)
from edgellm.backends.cpu.kernels.unpack import BLOCK_OF, Superblock
from edgellm.backends.cpu.simd.base import F32, I1, I8, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, V32B, Generic
from edgellm.backends.cpu.traits import SUPERBLOCK, TRAITS

Value = Any                                      # ir.Value: llvmlite has no static types
LANE = tuple(BLOCK_OF.index(block) for block in range(BLOCKS))       # block -> its lane
COLUMNS = 16                                     # at most at a time; their sums are COLUMNS x 8 rows x 8 blocks
ROWS = 8
FITS = 3 << 12                                   # bytes of activations that stay in a first-level cache beside a row


def accumulate(e: Generic, name: str, shape: Shape, weights: Value, row_bytes: Value, rows: Value, k: Value, x: Value,
               x_stride: Value, columns: Value, totals: Value) -> None:
    """Up to eight rows by some columns: to `totals` eight f32x8 for each column, a vector per row with a lane per block.

    Rows run through one after the other while the activations stay in the first-level cache; else superblock by superblock.
    """
    b, raw_superblock = e.b, raw_superblock_bytes(name)
    whole, superblocks = b.sdiv(k, I64(SUPERBLOCK)), b.sdiv(b.add(k, I64(SUPERBLOCK - 1)), I64(SUPERBLOCK))
    section, scales = b.mul(superblocks, I64(BLOCKS * 4)), b.mul(superblocks, I64(SUPERBLOCK))
    is_small = b.icmp_signed("<=", b.mul(columns, b.add(scales, b.mul(section, I64(2)))), I64(FITS))
    few = e.lane_rows
    groups = b.sdiv(b.add(rows, I64(few - 1)), I64(few))
    at_once = b.select(is_small, I64(1), groups)
    ahead = b.select(is_small, I64(AHEAD), b.mul(rows, row_bytes))
    zeros = _zeros(e)

    def opened(row: Value, index: Value, last: Value | None) -> Superblock:
        at = b.add(weights, b.add(b.mul(row, row_bytes), b.mul(index, I64(raw_superblock))))
        for line in range(0, raw_superblock, LINE):
            e.prefetch(b.add(at, ahead), line, to_first=False)
        return open_superblock(e.of_one_row(), name, at, last)

    def add_superblock(group: Value, index: Value, last: Value | None) -> None:
        row = b.mul(group, I64(few))
        place = b.add(totals, b.mul(row, I64(32)))
        is_first = b.icmp_signed("==", index, I64(0))
        before = b.select(is_first, zeros, place)
        superblocks = [opened(row, index, last)]
        if few == 2:                             # of an odd number of rows the last one twice: sums have room for eight
            next_row = b.add(row, I64(1))
            superblocks.append(opened(b.select(b.icmp_signed("<", next_row, rows), next_row, row), index, last))
        _by_columns(e, shape, superblocks, b.add(x, b.mul(index, I64(SUPERBLOCK))),
                    b.add(x, b.add(scales, b.mul(index, I64(BLOCKS * 4)))), x_stride, section, columns,
                    before, b.select(is_first, I64(0), I64(ROWS * 32)), place)

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
    kind = ir.ArrayType(I8, 32 * e.lane_rows)
    constant = cgutils.global_constant(e.b.module, "no_totals", ir.Constant(kind, bytearray(kind.count)))
    constant.linkage, constant.align = "internal", kind.count
    return e.b.ptrtoint(constant, I64)


def _by_columns(e: Generic, shape: Shape, superblocks: Sequence[Superblock], quants: Value, scales: Value, x_stride: Value,
                section: Value, columns: Value, before: Value, before_stride: Value, after: Value) -> None:
    """Each column's totals + the products of opened superblocks with it. `before`, `after`: of the first column's totals."""
    b = e.b
    opened, kind = _Opened(e, shape, superblocks), vector(F32, BLOCKS * len(superblocks))

    def step(first: Value, n: int) -> None:
        places = [b.add(first, I64(c)) for c in range(n)]
        offsets = [b.mul(place, x_stride) for place in places]
        totals = [e.load(kind, b.add(before, b.mul(place, before_stride))) for place in places]
        addresses = [(b.add(quants, offset), b.add(scales, offset)) for offset in offsets]
        for place, value in zip(places, opened.products(totals, addresses, section), strict=True):
            e.store(value, b.add(after, b.mul(place, I64(ROWS * 32))))

    at_once = 2 if opened.negatives else 1       # signs and sizes of quants are more than registers hold
    with cgutils.for_range(b, b.sdiv(columns, I64(at_once))) as loop:
        step(b.mul(loop.index, I64(at_once)), at_once)
    if at_once == 2:
        with b.if_then(b.trunc(columns, I1)):
            step(b.sub(columns, I64(1)), 1)


class _Opened:
    """A superblock of each of one or two rows, turned, with what its products start from."""

    def __init__(self, e: Generic, shape: Shape, superblocks: Sequence[Superblock]) -> None:
        self.e, self.shape, self.times = e, shape, len(superblocks)
        one = e.of_one_row()
        quants = self._joined([each.turned() if each.turned else turned(one, each, shape.whole) for each in superblocks])
        self.parts = [quants] if shape.n_scales == 1 else [quants[:4], quants[4:]]
        self.scales, self.mins, self.factor = (self._joined([[e.pick(value, BLOCK_OF) for value in values] for values in each])
                                               for each in ([u.scales for u in superblocks], [u.mins for u in superblocks],
                                                            [u.factor for u in superblocks]))
        self.negatives = [e.negatives(part) for part in self.parts] if shape.signed and e.sign_sums else None

    def _joined(self, of_superblocks: Sequence[Sequence[Value]]) -> list[Value]:
        return [self.e.join_all(values) for values in zip(*of_superblocks, strict=True)]

    def _for_all(self, kind: Any, address: Value, offset: int = 0) -> Value:
        """Of activations, for every row."""
        return self.e.join_all([self.e.load(kind, address, offset)] * self.times)

    def products(self, totals: Sequence[Value], columns: Sequence[tuple[Value, Value]], section: Value) -> list[Value]:
        """Totals + the products with some columns: addresses of their quants and of the d of their blocks."""
        e, b, shape = self.e, self.e.b, self.shape

        def sums(at: Value, index: int, n: int) -> Value:
            return self._for_all(V8I, b.add(at, b.mul(section, I64(sums_section(index, n)))))

        def starts(index: int) -> list[Value | None]:
            if self.negatives:
                return [self.negatives[index]] * len(columns)
            return [accumulator_init(e, shape.offset, sums(at, index, shape.n_scales)) if shape.offset else None
                    for _, at in columns]

        dots, first = [], 0
        for index, part in enumerate(self.parts):
            x = [[functools.partial(self._for_all, V32B, at, 32 * g) for g in range(first, first + len(part))] for at, _ in columns]
            if self.negatives:
                dots.append(e.dots([functools.partial(e.parted, w) for w in part], x, True, shape.most, starts(index)))
            else:
                dots.append([e.dot([(w, load()) for w, load in zip(part, loads, strict=True)], shape.signed, shape.most, start)
                             for loads, start in zip(x, starts(index), strict=True)])
            first += len(part)
        return [weighed(e, total, [dot[c] for dot in dots], self.scales, self.mins,
                        [sums(at, index, shape.n_mins) for index in range(shape.n_mins)], self._for_all(V8F, at), self.factor)
                for c, (total, (_, at)) in enumerate(zip(totals, columns, strict=True))]


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


def summed(e: Generic, totals: Value, transposed: Callable[[Generic, list[Value]], list[Value]]) -> Value:
    """A column's eight f32x8 to one with a lane per row; accumulators are added in order."""
    lanes = transposed(e, [e.load(V8F, totals, 32 * row) for row in range(ROWS)])
    return functools.reduce(e.b.fadd, [lanes[LANE[block]] for block in range(BLOCKS)])
