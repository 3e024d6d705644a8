"""One row of block-quantised weights by a few columns, as IR: a software-pipelined loop over superblocks.

From the load of a superblock's weights to its share of the sums instructions take three times as long, one after the other, as the
loop has work for in that time, and processors look only about an iteration ahead. So, where points come from tables, each
iteration stores the numbers of the next superblock's points, multiplies its own superblock, and weighs the integer sums of the
superblock before: two thirds of the time for IQ2_XXS on Zen 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul import superblock_pairs
from edgellm.backends.cpu.kernels.prefetch import prefetch
from edgellm.backends.cpu.kernels.unpack import unpack_grids
from edgellm.backends.cpu.kernels.unpack.superblock import (
    BLOCKS,
    Shape,
    offset_of,
    open_superblock,
    raw_superblock_bytes,
    superblock_dots,
    superblock_step,
    superblock_weighed,
)
from edgellm.backends.cpu.kernels.unpack.tables import hidden, put, room
from edgellm.backends.cpu.kernels.unpack.unpack import Superblock
from edgellm.backends.cpu.simd.base import I64, Value
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic
from edgellm.backends.cpu.traits import SUPERBLOCK, TRAITS

SCALES_BYTES = BLOCKS * 4  # of a superblock, in each section of a row of activations


def row_totals(e: Generic, name: str, shape: Shape, weights: Value, k: Value, columns: Sequence[Value]) -> list[Value]:
    """The eight accumulators of a row for some columns; the row's lines are asked for ahead."""
    b, full = e.b, e.b.sdiv(k, SUPERBLOCK)
    row = _Row(e, name, shape, weights, k, columns)
    if name in unpack_grids.UNPACK:
        _add_late(row.e, name, row, full)
        return [b.load(total) for total in row.totals]
    done: Value = I64(0)
    if superblock_pairs.in_pairs(e, name, len(columns)):
        pairs = b.lshr(full, 1)
        with b.if_then(b.icmp_signed(">", pairs, 0)):
            first_d = b.add(columns[0], row.first_scales)
            superblock_pairs.add_pairs(e, name, shape, weights, pairs, columns[0], row.section, first_d, row.totals[0])
        done = b.and_(full, -2)
    with cgutils.for_range_slice(b, done, full, I64(1), inc=True) as (index, _):
        row.add(index, None, BLOCKS)
    if TRAITS[name].block != SUPERBLOCK:
        rest = b.srem(k, SUPERBLOCK)
        last = b.sub(b.sdiv(rest, TRAITS[name].block), 1)
        with b.if_then(b.icmp_signed(">", rest, SUPERBLOCK // 2)):
            row.add(full, last, BLOCKS)
        with b.if_then(b.and_(b.icmp_signed(">", rest, 0), b.icmp_signed("<=", rest, SUPERBLOCK // 2))):
            row.add(full, last, BLOCKS // 2)
    return [b.load(total) for total in row.totals]


def _add_late(e: Generic, name: str, row: _Row, superblocks: Value) -> None:
    """All superblocks, each weighed a turn later."""
    points, late = _Points(e, name, row, superblocks), _Late(e, row)
    with e.loop(superblocks) as index:
        points.put(e.b.add(index, 1))
        superblock = row.opened(index, points.of(index))
        dots = superblock_dots(e, row.shape, superblock, len(row.columns))
        offset = offset_of(row.shape, superblock, len(row.columns))
        sums = [dots(quants) for quants, _ in row.addresses(index)]
        late.weigh(offset)
        late.keep(index, superblock, sums)
    late.weigh(offset)


class _Row:
    """Shared by the iterations of the loop."""

    def __init__(self, e: Generic, name: str, shape: Shape, weights: Value, k: Value, columns: Sequence[Value]) -> None:
        b, superblocks = e.b, e.b.sdiv(e.b.add(k, SUPERBLOCK - 1), SUPERBLOCK)
        self.e, self.of_few, self.name, self.shape, self.weights, self.columns = e.of_row(name), e, name, shape, weights, columns
        self.section, self.first_scales = b.mul(superblocks, SCALES_BYTES), b.mul(superblocks, SUPERBLOCK)
        self.totals = [cgutils.alloca_once(b, V8F) for _ in columns]
        for total in self.totals:
            b.store(e.constant(V8F, 0.0), total)

    def at(self, index: Value) -> Value:
        return self.e.at(self.weights, index, raw_superblock_bytes(self.name))

    def opened(self, index: Value, points: Value | None = None) -> Superblock:
        return self._opened(self.e, index, None, points)

    def _opened(
        self, e: Generic, index: Value, last: Value | None, points: Value | None = None, blocks: int = BLOCKS
    ) -> Superblock:
        at = self.at(index)
        prefetch(e, at, raw_superblock_bytes(self.name) * blocks // BLOCKS)
        return open_superblock(e, self.name, at, last, points)

    def addresses(self, index: Value) -> list[tuple[Value, Value]]:
        """Where each column has the quants of a superblock, and the d of its blocks."""
        b = self.e.b
        quants, scales = b.mul(index, SUPERBLOCK), self.e.at(self.first_scales, index, SCALES_BYTES)
        return [(b.add(column, quants), b.add(column, scales)) for column in self.columns]

    def add(self, index: Value, last: Value | None, blocks: int) -> None:
        """A superblock, of which not all blocks need exist."""
        b, e = self.e.b, self.e if blocks == BLOCKS else self.of_few
        superblock, addresses = self._opened(e, index, last, None, blocks), self.addresses(index)
        sums = superblock_step(e, self.shape, superblock, [b.load(total) for total in self.totals], addresses, self.section, blocks)
        for value, total in zip(sums, self.totals, strict=True):
            b.store(value, total)


class _Points:
    """Numbers of points a superblock ahead: loads wait long for what a store of vectors has just put there."""

    def __init__(self, e: Generic, name: str, row: _Row, superblocks: Value) -> None:
        self.e, self.row, self.find = e, row, unpack_grids.POINTS.get(name)
        if self.find:
            self.last = e.b.sub(superblocks, 1)
            self.space = hidden(e, room(e, 2 * unpack_grids.POINTS_BYTES))
            self.put(I64(0))

    def of(self, index: Value) -> Value | None:
        odd = self.e.b.and_(index, 1)
        return self.e.at(self.space, odd, unpack_grids.POINTS_BYTES) if self.find else None

    def put(self, index: Value) -> None:
        """After the last superblock there is none: it is done again."""
        if self.find:
            there = self.e.b.select(self.e.b.icmp_signed("<", index, self.last), index, self.last)
            put(self.e, self.find(self.e, self.row.at(there)), self.of(index))


class _Late:
    """A superblock's integer sums and what weighs them, until the next turn; at first zeros."""

    def __init__(self, e: Generic, row: _Row) -> None:
        shape, n = row.shape, len(row.columns)
        self.e, self.row = e, row
        self.dots = [[self._place(V8I) for _ in range(shape.n_scales)] for _ in range(n)]
        self.scales, self.mins = ([self._place(V8F) for _ in range(each)] for each in (shape.n_scales, shape.n_mins))
        self.d = [self._place(V8F) for _ in range(n)]
        self.index = self._place(I64)

    def _place(self, kind: Any) -> Value:
        place = cgutils.alloca_once(self.e.b, kind)
        self.e.b.store(self.e.constant(kind, 0), place)
        return place

    def keep(self, index: Value, superblock: Superblock, dots: Sequence[Sequence[Value]]) -> None:
        d = [self.e.load(V8F, at) for _, at in self.row.addresses(index)]
        values = [*(value for each in dots for value in each), *superblock.scales, *superblock.mins, *d, index]
        places = [*(place for each in self.dots for place in each), *self.scales, *self.mins, *self.d, self.index]
        for value, place in zip(values, places, strict=True):
            self.e.b.store(value, place)

    def weigh(self, offset: int) -> None:
        e, row, index = self.e, self.row, self.e.b.load(self.index)
        scales, mins = ([e.b.load(place) for place in places] for places in (self.scales, self.mins))
        for (_, at), total, dots, d in zip(row.addresses(index), row.totals, self.dots, self.d, strict=True):
            value = superblock_weighed(
                e,
                row.shape,
                e.b.load(total),
                [e.b.load(dot) for dot in dots],
                scales,
                mins,
                (),
                e.b.load(d),
                at,
                row.section,
                offset,
            )
            e.b.store(value, total)
