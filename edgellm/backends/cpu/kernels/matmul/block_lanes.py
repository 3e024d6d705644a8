"""A few columns, as IR, at ISA levels with `lanes_from`: a superblock's weights, turned so that a lane has a block, by each of
them.

The sums are those of superblock.py, operation by operation. Vector g of a superblock has quants 4 g to 4 g + 3 of its eight blocks,
so that products need no sums across lanes; weights are turned once for all columns, and rows of activations lie that way from the
start. Vectors of sixteen lanes have two rows side by side (two_rows.py), and the activations twice; two such pairs of rows share
the loads of activations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul import two_rows
from edgellm.backends.cpu.kernels.prefetch import AHEAD, LINE
from edgellm.backends.cpu.kernels.unpack.superblock import (
    BLOCKS,
    Shape,
    Turned,
    mins_of,
    open_superblock,
    raw_superblock_bytes,
    start_of,
    sums_of,
    turned_quants,
    weighed,
)
from edgellm.backends.cpu.kernels.unpack.unpack import BLOCK_OF
from edgellm.backends.cpu.simd.base import F32, I1, I8, I64, Value, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic, Load
from edgellm.backends.cpu.traits import BLOCK, SUPERBLOCK, TRAITS

LANE = tuple(BLOCK_OF.index(block) for block in range(BLOCKS))  # block -> its lane
COLUMNS = 16  # at most at a time; their sums are COLUMNS x 8 rows x 8 blocks
ROWS = 8
TOTALS_BYTES = ROWS * BLOCKS * 4  # of a column
FITS = 3 << 12  # bytes of activations that stay in a first-level cache beside a row


def accumulate(
    e: Generic,
    name: str,
    shape: Shape,
    weights: Value,
    row_bytes: Value,
    rows: Value,
    k: Value,
    x: Value,
    x_stride: Value,
    columns: Value,
    totals: Value,
) -> None:
    """Up to eight rows by some columns: to `totals`, for `summed`, eight f32x8 for each column.

    Those that go together run through one after the other while the activations stay in the first-level cache; else all rows go
    superblock by superblock.
    """
    b, raw_superblock, few = e.b, raw_superblock_bytes(name), e.level.lane_rows * e.level.lane_rows
    full, superblocks = b.sdiv(k, SUPERBLOCK), b.sdiv(b.add(k, SUPERBLOCK - 1), SUPERBLOCK)
    section, scales = b.mul(superblocks, BLOCKS * 4), b.mul(superblocks, SUPERBLOCK)
    is_small = b.icmp_signed("<=", b.mul(columns, e.at(scales, section, 2)), FITS)
    groups = b.sdiv(b.add(rows, few - 1), few)
    at_once = b.select(is_small, 1, groups)
    ahead = b.select(is_small, b.mul(row_bytes, few) if few > 1 else I64(AHEAD), b.mul(rows, row_bytes))
    zeros = _zeros(e)

    def add_superblock(group: Value, index: Value, last: Value | None) -> None:
        first, addresses = b.mul(group, few), []
        for i in range(few):  # of rows that do not exist the last one: sums have room for eight
            row, end = b.add(first, i), b.sub(rows, 1)
            row = b.select(b.icmp_signed("<", row, end), row, end)
            addresses.append(b.add(weights, e.at(b.mul(row, row_bytes), index, raw_superblock)))
            for line in range(0, raw_superblock, LINE):
                e.prefetch(b.add(addresses[i], ahead), line, to_first=False)
        is_first, place = b.icmp_signed("==", index, 0), e.at(totals, first, BLOCKS * 4)
        quants, numbers = b.mul(index, SUPERBLOCK), e.at(scales, index, BLOCKS * 4)
        opened = [_opened(e, name, shape, addresses[i : i + e.level.lane_rows], last) for i in range(0, few, e.level.lane_rows)]
        _Products(e, shape, opened, section).add(
            b.add(x, quants),
            b.add(x, numbers),
            x_stride,
            columns,
            b.select(is_first, zeros, place),
            b.select(is_first, I64(0), I64(TOTALS_BYTES)),
            place,
        )

    with e.loop(b.sdiv(groups, at_once)) as group:
        first = b.mul(group, at_once)
        with e.loop(full) as superblock, e.loop(at_once) as row:
            add_superblock(b.add(first, row), superblock, None)
        if TRAITS[name].block != SUPERBLOCK:
            rest = b.srem(k, SUPERBLOCK)
            last = b.sub(b.sdiv(rest, TRAITS[name].block), 1)
            with b.if_then(b.icmp_signed(">", rest, 0)), e.loop(at_once) as row:
                add_superblock(b.add(first, row), full, last)


def _zeros(e: Generic) -> Value:
    kind = ir.ArrayType(I8, BLOCKS * 4 * e.level.lane_rows * e.level.lane_rows)
    constant = cgutils.global_constant(e.b.module, "no_totals", ir.Constant(kind, bytearray(kind.count)))
    constant.linkage, constant.align = "internal", LINE
    return e.b.ptrtoint(constant, I64)


def _opened(e: Generic, name: str, shape: Shape, addresses: Sequence[Value], last: Value | None) -> Turned:
    """A superblock of a row, or of two."""
    if len(addresses) == two_rows.ROWS:
        return two_rows.opened(e, name, shape, addresses, last)
    superblock = open_superblock(e, name, addresses[0], last)
    numbers = superblock.scales, mins_of(e, superblock.mins), superblock.factor
    return Turned(turned_quants(e, superblock, shape.by_block), *([e.pick(value, BLOCK_OF) for value in each] for each in numbers))


class _Products:
    """Opened superblocks of a few rows by columns."""

    def __init__(self, e: Generic, shape: Shape, groups: Sequence[Turned], section: Value) -> None:
        self.e, self.shape, self.groups, self.section = e, shape, groups, section
        size = BLOCKS // shape.n_scales  # vectors that have a scale of their own
        self.weights = [[group.quants[first : first + size] for group in groups] for first in range(0, BLOCKS, size)]
        self.negatives = [e.negatives(w) for (w,) in self.weights] if shape.signed and e.level.sign_sums else None

    def add(
        self, quants: Value, numbers: Value, x_stride: Value, columns: Value, before: Value, before_stride: Value, after: Value
    ) -> None:
        """`after` = `before` + the products with columns `x_stride` bytes apart. `quants`, `numbers`: where the first one has what
        belongs to the superblock.
        """
        e, at_once = self.e, 2 if self.negatives else 1  # signs and sizes of quants are more than registers hold

        def step(first: Value, n: int) -> None:
            places = [e.b.add(first, c) for c in range(n)]
            x = [(e.at(quants, place, x_stride), e.at(numbers, place, x_stride)) for place in places]
            totals = [
                [e.load(vector(F32, BLOCKS * e.level.lane_rows), e.at(before, place, before_stride), offset) for place in places]
                for offset in self._offsets()
            ]
            for offset, of_group in zip(self._offsets(), self._sums(totals, x), strict=True):
                for place, value in zip(places, of_group, strict=True):
                    e.store(value, e.at(after, place, TOTALS_BYTES), offset)

        with e.loop(e.b.sdiv(columns, at_once)) as index:
            step(e.b.mul(index, at_once), at_once)
        if at_once == 2:
            with e.b.if_then(e.b.trunc(columns, I1)):
                step(e.b.sub(columns, 1), 1)

    def _offsets(self) -> range:
        """Of the groups' sums."""
        size = 4 * BLOCKS * self.e.level.lane_rows
        return range(0, size * len(self.groups), size)

    def _sums(self, totals: Sequence[Sequence[Value]], columns: Sequence[tuple[Value, Value]]) -> list[list[Value]]:
        """Of each group, its totals + the products with some columns: addresses of their quants and of the d of their blocks."""
        e, shape = self.e, self.shape

        def load(kind: Any, at: Value, offset: Value | int) -> Value:
            """A column's numbers, for all rows of a vector."""
            value = e.load(kind, e.b.add(at, offset if isinstance(offset, ir.Value) else I64(offset)))
            return e.join_all([value] * e.level.lane_rows)

        def numbers_of(at: Value) -> Callable[[Any, int], Value]:
            return lambda element, section: load(vector(element, BLOCKS), at, e.b.mul(self.section, section))

        dots = []
        for half, weights in enumerate(self.weights):
            starts, n = [start_of(e, shape, half, shape.offset, numbers_of(at)) for _, at in columns], len(weights[0])
            x = [[functools.partial(load, vector(I8, BLOCK), at, BLOCK * (half * n + g)) for g in range(n)] for at, _ in columns]
            dots.append(self._dots(half, x, starts))
        sums, d = [sums_of(e, shape, numbers_of(at)) for _, at in columns], [numbers_of(at)(F32, 0) for _, at in columns]
        return [
            [
                weighed(e, totals[i][c], [dot[i][c] for dot in dots], group.scales, group.mins, sums[c], d[c], group.factor)
                for c in range(len(columns))
            ]
            for i, group in enumerate(self.groups)
        ]

    def _dots(self, half: int, x: Sequence[Sequence[Load]], starts: Sequence[Value | None]) -> list[list[Value]]:
        """Of each group, integer sums with each of some columns: of full blocks, or of their first or second halves."""
        e, weights, most = self.e, self.weights[half], self.shape.most
        if self.negatives:
            return [e.dots([functools.partial(e.parted, w) for w in weights[0]], x, True, most, [self.negatives[half]] * len(x))]
        if len(weights) == 1:
            return [
                [
                    e.dot([(w, load()) for w, load in zip(weights[0], column, strict=True)], self.shape.signed, most, start)
                    for column, start in zip(x, starts, strict=True)
                ]
            ]
        by_column = []
        for column, start in zip(x, starts, strict=True):
            totals = [start] * len(weights)
            for g, load in enumerate(column):
                value = load()
                totals = [e.dot([(w[g], value)], self.shape.signed, most, total) for w, total in zip(weights, totals, strict=True)]
            by_column.append(totals)
        return [list(of_group) for of_group in zip(*by_column, strict=True)]


def summed(e: Generic, totals: Value, transposed: Callable[[Generic, list[Value]], list[Value]]) -> Value:
    """A column's sums of eight rows to one f32x8 with a lane per row; accumulators are added in order."""
    lanes = transposed(e, [e.load(V8F, totals, 4 * BLOCKS * row) for row in range(ROWS)])
    return functools.reduce(e.b.fadd, [lanes[LANE[block]] for block in range(BLOCKS)])
