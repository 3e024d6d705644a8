"""Interleaved rows of weights by a few columns, as IR: a lane has a row, and products need no shuffles, no sums across lanes.

The sums are those of superblock.py, operation by operation. Columns are multiplied while a superblock is opened: opening one again
takes less time than to store its quants and load them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul.block_lanes import LANE
from edgellm.backends.cpu.kernels.prefetch import INTERLEAVED, LINE
from edgellm.backends.cpu.kernels.unpack import panel_rows
from edgellm.backends.cpu.kernels.unpack.row_words import InterleavedRows, There, each_superblock
from edgellm.backends.cpu.kernels.unpack.superblock import (
    BLOCKS,
    Shape,
    accumulator_init,
    quants_offset,
    raw_superblock_bytes,
    start_of,
    sums_of,
    sums_section,
    weighed,
)
from edgellm.backends.cpu.simd.base import F32, I8, I32, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, SUPERBLOCK

Order = Literal["natural", "apart", "lanes"]  # see traits.py: of one or two rows, at ISA levels with `rows_apart`, of more
AT_ONCE = 4  # columns that are multiplied while a superblock is opened
AHEAD = 1 << 13  # bytes after the next superblock that are prefetched meanwhile


class _Column:
    """A superblock of a row of activations: `quants` and `numbers`, the address of the d of its blocks; `order` of the quants."""

    def __init__(self, e: Generic, shape: Shape, quants: Value, numbers: Value, section: Value, order: Order) -> None:
        self._e, self._shape, self._quants, self._numbers, self._section, self._order = e, shape, quants, numbers, section, order
        self._lanes = order == "lanes"

    def four(self, block: int, g: int) -> Value:
        """Four quants, for all rows."""
        half = g // 4
        if self._order == "lanes":
            at = BLOCK * g + 4 * LANE[block]
        elif self._order == "apart":
            at = (2 * (block % 4) + half) * BLOCK + block // 4 * BLOCK // 2 + g % 4 * 4
        else:
            at = quants_offset(block, half, self._shape.by_block) + g % 4 * 4
        rows = self._e.level.tile_rows
        return self._e.cast(self._e.splat(self._e.load(I32, self._quants, at), rows), vector(I8, 4 * rows))

    def number(self, block: int, element: Any, section: int) -> Value:
        """A number of a block, for all rows: its d, or what traits.py has in another section."""
        at = self._e.at(self._numbers, self._section, section) if section else self._numbers
        return self._e.splat(self._e.load(element, at, 4 * (LANE[block] if self._lanes else block)), self._e.level.tile_rows)

    def start(self, block: int, index: int, place: int) -> Value | None:
        """Initial sums of a block's dot products, or of its first or second half; `place`: see panel_rows.Target."""
        shape, offset = self._shape, self._shape.offset << place
        if self._lanes:
            return start_of(self._e, shape, index, offset, functools.partial(self.number, block))
        if not offset:
            return None
        return accumulator_init(self._e, offset, self.number(block, I32, sums_section(index, shape.n_scales)))

    def sums(self, block: int) -> list[Value]:
        """The factors of a block's mins."""
        e, n = self._e, self._shape.n_mins
        if self._lanes:
            return sums_of(e, self._shape, functools.partial(self.number, block))
        sums = [self.number(block, I32, sums_section(index, n)) for index in range(n)]
        return sums if n < 2 else [accumulator_init(e, e.level.tile_offset or 1, each) for each in sums]  # see `mins_of`


class _Products:
    """Multiplies a superblock by some columns while it is opened: see panel_rows.Target."""

    def __init__(
        self,
        e: Generic,
        shape: Shape,
        columns: Sequence[_Column],
        load: Callable[[int, int], Value],
        store: Callable[[int, int, Value], None],
    ) -> None:
        """`load(column, block)`, `store(column, block, value)`: where sums are."""
        self._e, self._shape, self._columns, self._load, self._store = e, shape, columns, load, store
        self._dots: dict[tuple[int, int, int], Value | None] = {}  # column, block, half
        self._numbers: dict[tuple[int, int], Value] = {}  # block, index

    def quants(self, block: int, g: int, value: Value, place: int = 0) -> None:
        e, half = self._e, g * self._shape.n_scales // 8
        w = e.cast(value, vector(I8, 4 * e.level.tile_rows))
        for c, column in enumerate(self._columns):
            key = c, block, half
            start = self._dots[key] if key in self._dots else column.start(block, half, place)
            self._dots[key] = e.dot([(w, column.four(block, g))], False, self._shape.most, start)

    def number(self, block: int, index: int, value: Value) -> None:
        self._numbers[block, index] = value if value.type.element == F32 else self._e.b.sitofp(value, vector(F32, value.type.count))

    def done(self, block: int) -> None:
        n, end = self._shape.n_scales, self._shape.n_scales + self._shape.n_mins
        numbers = [self._numbers[block, index] for index in range(self._shape.n_vectors)]
        for c, column in enumerate(self._columns):
            self._store(
                c,
                block,
                weighed(
                    self._e,
                    self._load(c, block),
                    [self._dots[c, block, half] for half in range(n)],
                    numbers[:n],
                    numbers[n:end],
                    column.sums(block),
                    column.number(block, F32, 0),
                    numbers[end:],
                ),
            )


class _Ahead(_Products):
    """Prefetches `lines` from `ahead` on meanwhile, into the first-level cache or the second."""

    def __init__(
        self,
        e: Generic,
        shape: Shape,
        columns: Sequence[_Column],
        load: Callable[[int, int], Value],
        store: Callable[[int, int, Value], None],
        ahead: Value,
        lines: int,
        *,
        to_first: bool,
    ) -> None:
        super().__init__(e, shape, columns, load, store)
        self._ahead, self._lines, self._to_first = ahead, lines, to_first

    def done(self, block: int) -> None:
        for line in range(self._lines * block // BLOCKS, self._lines * (block + 1) // BLOCKS):
            self._e.prefetch(self._ahead, LINE * line, to_first=self._to_first)
        super().done(block)


def accumulate(e: Generic, name: str, shape: Shape, weights: Value, k: Value, columns: Sequence[Value]) -> list[Value]:
    """A group of rows by one or two columns: for each a vector with a lane per row."""
    b, kind = e.b, vector(F32, e.level.tile_rows)
    totals = [[cgutils.alloca_once(b, kind) for _ in range(BLOCKS)] for _ in columns]
    for each in (place for places in totals for place in places):
        b.store(e.constant(kind, 0.0), each)
    lines = -(-raw_superblock_bytes(name) * e.level.tile_rows // LINE) if INTERLEAVED else 0

    def add(index: Value, words: InterleavedRows, there: There, order: Order) -> None:
        some = [_column(e, shape, x, k, index, order) for x in columns]
        panel_rows.open_rows(
            e,
            name,
            words,
            _Ahead(
                e,
                shape,
                some,
                lambda c, block: b.load(totals[c][block]),
                lambda c, block, value: b.store(value, totals[c][block]),
                b.add(words.address, INTERLEAVED),
                lines,
                to_first=True,
            ),
            there,
        )

    def use(index: Value, words: InterleavedRows, there: There, blocks: Value | None) -> None:
        if e.level.single_column != "apart":
            add(index, words, there, "natural")
        elif blocks is None:
            add(index, words, there, "apart")
        else:
            with b.if_else(b.icmp_signed(">", blocks, BLOCKS // 2)) as (many, few):
                with many:
                    add(index, words, there, "apart")
                with few:
                    add(index, words, there, "natural")

    each_superblock(e, name, weights, k, use)
    return [functools.reduce(b.fadd, [b.load(place) for place in places]) for places in totals]


def _column(e: Generic, shape: Shape, x: Value, k: Value, index: Value, order: Order) -> _Column:
    b, superblocks = e.b, e.b.sdiv(e.b.add(k, SUPERBLOCK - 1), SUPERBLOCK)
    section, scales = b.mul(superblocks, BLOCKS * 4), b.mul(superblocks, SUPERBLOCK)
    numbers = e.at(scales, index, BLOCKS * 4)
    return _Column(e, shape, e.at(x, index, SUPERBLOCK), b.add(x, numbers), section, order)


def accumulate_columns(
    e: Generic, name: str, shape: Shape, weights: Value, k: Value, x: Value, x_stride: Value, columns: Value, totals: Value
) -> None:
    """A group of rows by several columns that lie in rows with a lane per block: to `totals`, for `summed`, eight vectors for each
    column. A superblock is opened for every few columns: its quants then stay in registers.
    """
    b, size, kind = e.b, 4 * e.level.tile_rows, vector(F32, e.level.tile_rows)
    with e.loop(b.mul(columns, BLOCKS)) as index:
        e.store(e.constant(kind, 0.0), e.at(totals, index, size))
    nbytes = raw_superblock_bytes(name) * e.level.tile_rows

    def use(index: Value, words: InterleavedRows, there: There, blocks: Value | None) -> None:
        def some(first: Value, n: int) -> None:
            starts = [e.at(x, b.add(first, c), x_stride) for c in range(n)]
            of_columns = [_column(e, shape, start, k, index, "lanes") for start in starts]
            places = e.at(totals, first, BLOCKS * size)
            ahead = b.select(b.icmp_signed("==", first, 0), b.add(words.address, nbytes + AHEAD), words.address)
            panel_rows.open_rows(
                e,
                name,
                words,
                _Ahead(
                    e,
                    shape,
                    of_columns,
                    lambda c, block: e.load(kind, places, size * (BLOCKS * c + block)),
                    lambda c, block, value: e.store(value, places, size * (BLOCKS * c + block)),
                    ahead,
                    nbytes // LINE,
                    to_first=False,
                ),
                there,
            )

        _by(e, columns, some)

    each_superblock(e, name, weights, k, use)


def _by(e: Generic, columns: Value, some: Callable[[Value, int], None]) -> None:
    """`some(first, n)` of AT_ONCE columns, then of what is left of them."""
    b = e.b
    full = b.sdiv(columns, AT_ONCE)
    with e.loop(full) as index:
        some(b.mul(index, AT_ONCE), AT_ONCE)
    rest = b.srem(columns, AT_ONCE)
    for n in range(1, AT_ONCE):
        with b.if_then(b.icmp_signed("==", rest, n)):
            some(b.mul(full, AT_ONCE), n)


def summed(e: Generic, totals: Value) -> Value:
    """A column's sums of a group of rows: accumulators are added in order."""
    kind, size = vector(F32, e.level.tile_rows), 4 * e.level.tile_rows
    return functools.reduce(e.b.fadd, [e.load(kind, totals, size * block) for block in range(BLOCKS)])
