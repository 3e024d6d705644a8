"""A few columns, as IR, on rungs with `lanes_from`: weights of a unit turned so that a lane has a block, then multiplied by each.

The sums are those of unit.py, operation by operation. Vector g of a unit has codes 4 g to 4 g + 3 of its eight blocks, so that
products need no sums across lanes; weights are turned once for all columns, and rows of activations lie that way from the start.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels._prefetch import AHEAD, LINE
from edgellm.backends.cpu.kernels.unit import (
    BLOCKS,
    Shape,
    open_unit,
    raw_unit_bytes,
    started,
    sums_section,
    weighed,
)
from edgellm.backends.cpu.kernels.unpack import BLOCK_OF, Unit
from edgellm.backends.cpu.simd.base import I1, I8, I64
from edgellm.backends.cpu.simd.generic import V8F, V8I, V32B, Generic
from edgellm.backends.cpu.traits import TRAITS, UNIT

Value = Any                                      # ir.Value: llvmlite has no static types
LANE = tuple(BLOCK_OF.index(block) for block in range(BLOCKS))       # block -> its lane
COLUMNS = 16                                     # at most at a time; their sums are COLUMNS x 8 rows x 8 blocks
ROWS = 8
FITS = 3 << 12                                   # bytes of activations that stay in a first-level cache beside a row


def accumulate(e: Generic, name: str, shape: Shape, weights: Value, row_bytes: Value, rows: Value, k: Value, x: Value,
               x_stride: Value, columns: Value, totals: Value) -> None:
    """Up to eight rows by some columns: to `totals` eight f32x8 for each column, a vector per row with a lane per block.

    Rows run through one after the other while the activations stay in the first-level cache; else unit by unit.
    """
    b, raw_unit = e.b, raw_unit_bytes(name)
    whole, units = b.sdiv(k, I64(UNIT)), b.sdiv(b.add(k, I64(UNIT - 1)), I64(UNIT))
    section, scales = b.mul(units, I64(BLOCKS * 4)), b.mul(units, I64(UNIT))
    is_small = b.icmp_signed("<=", b.mul(columns, b.add(scales, b.mul(section, I64(2)))), I64(FITS))
    at_once = b.select(is_small, I64(1), rows)
    ahead = b.select(is_small, I64(AHEAD), b.mul(rows, row_bytes))
    zeros = _zeros(e)

    def add_unit(row: Value, index: Value, last: Value | None) -> None:
        at = b.add(weights, b.add(b.mul(row, row_bytes), b.mul(index, I64(raw_unit))))
        for line in range(0, raw_unit, LINE):
            e.prefetch(b.add(at, ahead), line, to_first=False)
        place = b.add(totals, b.mul(row, I64(32)))
        is_first = b.icmp_signed("==", index, I64(0))
        before = b.select(is_first, zeros, place)
        _by_columns(e, shape, open_unit(e, name, at, last), b.add(x, b.mul(index, I64(UNIT))),
                    b.add(x, b.add(scales, b.mul(index, I64(BLOCKS * 4)))), x_stride, section, columns,
                    before, b.select(is_first, I64(0), I64(ROWS * 32)), place)

    with cgutils.for_range(b, b.sdiv(rows, at_once)) as group:
        first = b.mul(group.index, at_once)
        with cgutils.for_range(b, whole) as unit, cgutils.for_range(b, at_once) as row:
            add_unit(b.add(first, row.index), unit.index, None)
        if TRAITS[name].block != UNIT:
            rest = b.srem(k, I64(UNIT))
            last = b.sub(b.sdiv(rest, I64(TRAITS[name].block)), I64(1))
            with b.if_then(b.icmp_signed(">", rest, I64(0))), cgutils.for_range(b, at_once) as row:
                add_unit(b.add(first, row.index), whole, last)


def _zeros(e: Generic) -> Value:
    kind = ir.ArrayType(I8, 32)
    constant = cgutils.global_constant(e.b.module, "no_totals", ir.Constant(kind, bytearray(32)))
    constant.linkage, constant.align = "internal", 32
    return e.b.ptrtoint(constant, I64)


def _by_columns(e: Generic, shape: Shape, unit: Unit, codes: Value, scales: Value, x_stride: Value, section: Value,
                columns: Value, before: Value, before_stride: Value, after: Value) -> None:
    """Each column's totals + the products of an opened unit with it. `before`, `after`: of the first column's totals."""
    b = e.b
    opened = _Opened(e, shape, unit)

    def step(first: Value, n: int) -> None:
        places = [b.add(first, I64(c)) for c in range(n)]
        offsets = [b.mul(place, x_stride) for place in places]
        totals = [e.load(V8F, b.add(before, b.mul(place, before_stride))) for place in places]
        addresses = [(b.add(codes, offset), b.add(scales, offset)) for offset in offsets]
        for place, value in zip(places, opened.products(totals, addresses, section), strict=True):
            e.store(value, b.add(after, b.mul(place, I64(ROWS * 32))))

    at_once = 2 if opened.negatives else 1       # signs and sizes of codes are more than registers hold
    with cgutils.for_range(b, b.sdiv(columns, I64(at_once))) as loop:
        step(b.mul(loop.index, I64(at_once)), at_once)
    if at_once == 2:
        with b.if_then(b.trunc(columns, I1)):
            step(b.sub(columns, I64(1)), 1)


class _Opened:
    """A unit of a row, turned, with what its products start from."""

    def __init__(self, e: Generic, shape: Shape, unit: Unit) -> None:
        self.e, self.shape = e, shape
        codes = unit.turned() if unit.turned else turned(e, unit, shape.whole)
        self.parts = [codes] if shape.n_scales == 1 else [codes[:4], codes[4:]]
        self.scales, self.minima, self.factor = ([e.pick(value, BLOCK_OF) for value in values]
                                                 for values in (unit.scales, unit.minima, unit.factor))
        self.negatives = [e.negatives(part) for part in self.parts] if shape.signed and e.sign_sums else None

    def products(self, totals: Sequence[Value], columns: Sequence[tuple[Value, Value]], section: Value) -> list[Value]:
        """Totals + the products with some columns: addresses of their codes and of the d of their blocks."""
        e, b, shape = self.e, self.e.b, self.shape

        def sums(at: Value, index: int, n: int) -> Value:
            return e.load(V8I, b.add(at, b.mul(section, I64(sums_section(index, n)))))

        def starts(index: int) -> list[Value | None]:
            if self.negatives:
                return [self.negatives[index]] * len(columns)
            return [started(e, shape.offset, sums(at, index, shape.n_scales)) if shape.offset else None for _, at in columns]

        dots, first = [], 0
        for index, part in enumerate(self.parts):
            x = [[functools.partial(e.load, V32B, at, 32 * g) for g in range(first, first + len(part))] for at, _ in columns]
            if self.negatives:
                dots.append(e.dots([functools.partial(_same, w) for w in part], x, True, shape.most, starts(index)))
            else:
                dots.append([e.dot([(w, load()) for w, load in zip(part, loads, strict=True)], shape.signed, shape.most, start)
                             for loads, start in zip(x, starts(index), strict=True)])
            first += len(part)
        return [weighed(e, total, [dot[c] for dot in dots], self.scales, self.minima,
                        [sums(at, index, shape.n_minima) for index in range(shape.n_minima)], e.load(V8F, at), self.factor)
                for c, (total, (_, at)) in enumerate(zip(totals, columns, strict=True))]


def _same(value: Value) -> Value:
    return value


def turned(e: Generic, unit: Unit, whole: bool) -> list[Value]:
    """The eight vectors of a unit's codes with a lane per block."""
    vectors = []
    for h in (0, 1):
        if whole:                                # a block each; of two, their halves h
            lanes = [*range(16 * h, 16 * h + 16), *range(32 + 16 * h, 48 + 16 * h)]
            rows = [e.shuffle(unit.codes(q, 0), unit.codes(q, 1), lanes) for q in range(4)]
        else:
            rows = [unit.codes(q, h) for q in range(4)]
        vectors += e.turned(rows)
    return vectors


def summed(e: Generic, totals: Value, transposed: Callable[[Generic, list[Value]], list[Value]]) -> Value:
    """A column's eight f32x8 to one with a lane per row; accumulators are added in order."""
    lanes = transposed(e, [e.load(V8F, totals, 32 * row) for row in range(ROWS)])
    return functools.reduce(e.b.fadd, [lanes[LANE[block]] for block in range(BLOCKS)])
