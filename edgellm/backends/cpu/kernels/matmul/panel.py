"""Many columns, as IR: a group of weight rows unpacked and interleaved, and tiles of them by sixteen columns.

A group has as many rows as a vector of the ISA level has lanes of 32 bits. A panel of groups has, for block j of every superblock,
group by group and superblock by superblock, a record: eight vectors of four quants of every row, then vectors of scales and mins,
with a lane per row. At ISA levels with a `tile_offset` quants with any offset get that one; of types with a `folded` shape they
are there times the scales of their half blocks. Of signed quants, at ISA levels with `sign_sums`, sizes take their place, and what
`dots` starts from and masks of the negative ones follow. A tile of activations has, for block j of every superblock, a record of
each: for four quants at a time those of sixteen columns, then their d and sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul import folding, neon_tile
from edgellm.backends.cpu.kernels.prefetch import LINE
from edgellm.backends.cpu.kernels.unpack import panel_rows, row_words
from edgellm.backends.cpu.kernels.unpack.superblock import (
    BLOCKS,
    VECTOR_BYTES,
    Shape,
    folded,
    mins_of,
    open_superblock,
    raw_superblock_bytes,
    start_of,
    sums_of,
    unpack_step,
    weighed,
)
from edgellm.backends.cpu.levels import Level
from edgellm.backends.cpu.simd.base import F32, I8, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, SUPERBLOCK, TILE_COLUMNS, TRAITS

X_RECORD = TILE_COLUMNS * (BLOCK + 16)  # bytes of a block of a tile of activations
X_SECTIONS = TILE_COLUMNS * BLOCK  # where its d begin, then the sums


def record_bytes(level: Level, shape: Shape) -> int:
    """Bytes of one block of a group of rows in a panel."""
    n_sums = sign_sums(level, shape)
    return level.tile_rows * (BLOCK + 4 * (shape.n_vectors + n_sums) + (BLOCK if n_sums else 0))


def quants_at(e: Generic, shape: Shape, w: Value, g: int) -> Any:
    """The g-th four quants of all rows of the record at `w`, as `dots` takes them."""
    kind, size = vector(I8, 4 * e.level.tile_rows), 4 * e.level.tile_rows
    quants = e.load(kind, w, size * g)
    return (quants, e.load(kind, w, record_bytes(e.level, shape) - size * (8 - g))) if sign_sums(e.level, shape) else quants


def starts_at(e: Generic, shape: Shape, w: Value, index: int) -> Value:
    """Initial sums of the dot products of signed quants, or of their first or second half."""
    return e.load(vector(I32, e.level.tile_rows), w, e.level.tile_rows * (BLOCK + 4 * (shape.n_vectors + index)))


def sign_sums(level: Level, shape: Shape) -> int:
    """The number of i32 vectors that end a block's record: initial sums of dot products of signed quants, for each scale."""
    return shape.n_scales if shape.signed and level.sign_sums else 0


def row_superblock_bytes(shape: Shape) -> int:
    """Bytes of one superblock of one row before it is interleaved with others."""
    return SUPERBLOCK + VECTOR_BYTES * shape.n_vectors


def unpack_group(
    e: Generic,
    name: str,
    shape: Shape,
    weights: Value,
    row_bytes: Value,
    left: Value,
    k: Value,
    rows: Value,
    out: Value,
    pass_bytes: Value,
) -> None:
    """A group of rows of k weights, `row_bytes` apart, to a panel, which has their `folded` shape: records of their blocks j are
    at `out` + j * `pass_bytes`. `rows` is space for a superblock of them. Only `left` rows exist; missing ones repeat the last of
    them.
    """
    b, superblocks = e.b, e.b.sdiv(e.b.add(k, SUPERBLOCK - 1), SUPERBLOCK)
    full = b.sdiv(k, SUPERBLOCK)
    if panel_rows.opens_file(e, name):
        _unpack_rows(e, name, shape, weights, row_bytes, left, k, out, pass_bytes)
        return

    there = folded(shape, e.level)

    def unpack(index: Value, last: Value | None) -> None:
        source = e.at(weights, index, raw_superblock_bytes(name))
        with e.loop(e.level.tile_rows) as row:
            here = b.select(b.icmp_signed("<", row, left), row, b.sub(left, 1))
            superblock = open_superblock(e, name, e.at(source, here, row_bytes), last)
            to = e.at(rows, row, row_superblock_bytes(there))
            if there.folded:
                superblock = folding.folded_superblock(e, superblock)
            unpack_step(e, there, superblock, mins_of(e, superblock.mins), to)
        _to_panel(e, there, rows, e.at(out, index, record_bytes(e.level, there)), pass_bytes)

    with e.loop(full) as index:
        unpack(index, None)
    if TRAITS[name].block != SUPERBLOCK:
        rest = b.srem(k, SUPERBLOCK)
        with b.if_then(b.icmp_signed(">", rest, 0)):
            unpack(full, b.sub(b.sdiv(rest, TRAITS[name].block), 1))
    if sign_sums(e.level, shape):
        with e.loop(BLOCKS) as block, e.loop(superblocks) as index:
            record = e.at(out, block, pass_bytes)
            _split_signs(e, shape, e.at(record, index, record_bytes(e.level, shape)))


def _unpack_rows(
    e: Generic, name: str, shape: Shape, weights: Value, row_bytes: Value, left: Value, k: Value, out: Value, pass_bytes: Value
) -> None:
    """`unpack_group` of all rows at once."""
    b, nbytes, raw_superblock, begin = e.b, TRAITS[name].block_bytes, raw_superblock_bytes(name), I64(0)
    full = b.sdiv(k, SUPERBLOCK)
    starts = [b.mul(b.select(b.icmp_signed("<", row, left), row, b.sub(left, 1)), row_bytes) for row in range(e.level.tile_rows)]

    def at(place: Value) -> list[Value]:
        return [b.add(b.add(weights, place), start) for start in starts]

    if nbytes in (raw_superblock, row_words.SMALL_BLOCK):
        begin = b.mul(full, BLOCKS)
        with e.loop(full) as i:
            source = at(b.mul(i, raw_superblock))
            words = row_words.FileRows(e, source, nbytes) if nbytes == raw_superblock else row_words.FileSuperblocks(e, source)
            panel_rows.open_rows(e, name, words, _target(e, shape, out, i, pass_bytes))
    if nbytes != raw_superblock:
        with cgutils.for_range_slice(b, begin, b.sdiv(k, BLOCK), I64(1), inc=True) as (index, _):
            record = e.at(out, b.lshr(index, 3), record_bytes(e.level, shape))
            record = e.at(record, b.and_(index, BLOCKS - 1), pass_bytes)
            block = row_words.FileBlocks(e, at(b.mul(index, nbytes)))
            panel_rows.open_block(e, name, block, _Panel(e, shape, [record]))


def unpack_interleaved(e: Generic, name: str, shape: Shape, weights: Value, k: Value, out: Value, pass_bytes: Value) -> None:
    """`unpack_group` of a group whose rows are interleaved in memory."""
    row_words.each_superblock(
        e,
        name,
        weights,
        k,
        lambda index, words, there, _: panel_rows.open_rows(e, name, words, _target(e, shape, out, index, pass_bytes), there),
    )


class _Panel:
    """Takes blocks of a group of rows to their places in a panel, `records`: see panel_rows.Target."""

    def __init__(self, e: Generic, shape: Shape, records: Sequence[Value]) -> None:
        self._e, self._shape, self._records = e, shape, records

    def quants(self, block: int, g: int, value: Value, place: int = 0) -> None:
        self._e.store(_moved(self._e, self._shape, value, place), self._records[block], g * 4 * self._e.level.tile_rows)

    def number(self, block: int, index: int, value: Value) -> None:
        self._e.store(value, self._records[block], self._e.level.tile_rows * (BLOCK + 4 * index))

    def done(self, block: int) -> None:
        """All of it is there."""


class _Folded(_Panel):
    """The same with a `superblock.folded` shape."""

    def __init__(self, e: Generic, own: Shape, records: Sequence[Value]) -> None:
        super().__init__(e, folded(own, e.level), records)
        self._own, self._factors, self._places = own, dict[int, Value](), dict[int, int]()
        self._multiply: dict[tuple[int, int], Callable[[Value, int], Value]] = {}

    def number(self, block: int, index: int, value: Value) -> None:
        own = self._own
        if index < own.n_scales:
            self._multiply[block, index] = folding.multiplier(self._e, value, own.offset)
        elif index < own.n_scales + own.n_mins:
            super().number(block, index + 1 - own.n_scales, value)
        else:
            self._factors[block] = self._e.b.fneg(value) if own.offset else value

    def quants(self, block: int, g: int, value: Value, place: int = 0) -> None:
        self._places[block] = place
        super().quants(block, g, self._multiply[block, g * self._own.n_scales // 8](value, place))

    def done(self, block: int) -> None:
        factor = self._factors[block]  # of quants as they came
        super().number(block, 0, self._e.b.fmul(factor, float(1 << self._places[block])))


def _target(e: Generic, shape: Shape, panel: Value, index: Value, pass_bytes: Value) -> _Panel:
    """A superblock's places in a panel."""
    there = folded(shape, e.level)
    first = e.at(panel, index, record_bytes(e.level, there))
    records = [e.at(first, pass_bytes, j) for j in range(SUPERBLOCK // BLOCK)]
    return (_Folded if there.folded else _Panel)(e, shape, records)


def _split_signs(e: Generic, shape: Shape, record: Value) -> None:
    """Signed quants of a record to sizes, sums and masks."""
    size = 4 * e.level.tile_rows
    quants = [e.load(vector(I8, size), record, size * g) for g in range(8)]
    for index, part in enumerate([quants] if shape.n_scales == 1 else [quants[:4], quants[4:]]):
        e.store(e.negatives(part), record, e.level.tile_rows * (BLOCK + 4 * (shape.n_vectors + index)))
    for g, (sizes, negative) in enumerate(map(e.parted, quants)):
        e.store(sizes, record, size * g)
        e.store(negative, record, record_bytes(e.level, shape) - size * (8 - g))


def _to_panel(e: Generic, shape: Shape, rows: Value, out: Value, pass_bytes: Value) -> None:
    """A superblock of a group of rows to its place in a panel, where its blocks are `pass_bytes` apart."""
    b, row_superblock = e.b, row_superblock_bytes(shape)

    def words(source: Value) -> list[Value]:
        return e.lane_per_row([e.load(vector(I32, 4), source, row_superblock * row) for row in range(e.level.tile_rows)])

    with e.loop(4) as four:  # four blocks' first halves, second halves, of the other four
        first = b.mul(b.lshr(four, 1), 4)
        to = e.at(out, b.and_(four, 1), e.level.tile_rows * BLOCK // 2)
        with e.loop(4) as block:
            source = b.add(rows, e.at(b.mul(four, 64), block, 16))
            if shape.by_block:
                halves = b.add(b.mul(b.add(first, block), 2), b.and_(four, 1))
                source = e.at(rows, halves, BLOCK // 2)
            at = e.at(to, b.add(first, block), pass_bytes)
            for g, value in enumerate(e.panel_words(words(source))):
                e.store(_moved(e, shape, value), at, g * 4 * e.level.tile_rows)
    for index in range(shape.n_vectors):
        for first_block in (0, 4):
            source = b.add(rows, SUPERBLOCK + VECTOR_BYTES * index + 4 * first_block)
            for i, value in enumerate(words(source)):
                at = e.at(out, pass_bytes, first_block + i)
                e.store(value, at, e.level.tile_rows * (BLOCK + 4 * index))


def _moved(e: Generic, shape: Shape, words: Value, place: int = 0) -> Value:
    """Quants, multiples by 2^place, with the offset of the ISA level's tiles in place of theirs; with none for AMX, which takes
    signed ones as well.
    """
    offset, own = 0 if e.level.tile == "unit" else e.level.tile_offset, shape.offset << place
    if not own or offset in (None, own):
        return words
    quants = e.cast(words, vector(I8, 4 * e.level.tile_rows))
    return e.b.sub(quants, (own - offset + 128) % 256 - 128)


def multiply(
    e: Generic,
    shape: Shape,
    ahead_bytes: int,
    panel: Value,
    superblocks: Value,
    x: Value,
    totals: Value,
    block: Value,
    ahead: Value,
) -> None:
    """Pass `block` (0..7) of a group by a tile: records of that block at `panel` and `x`; sums are added to `totals`, which the
    first pass sets: for each column a vector with a lane per row. Meanwhile `ahead_bytes` for each superblock are prefetched
    from `ahead` on, unless that is 0.
    """
    first_column = 0
    for columns in e.split_tile(shape.n_scales, shape.n_mins, shape.signed):
        _multiply_columns(
            e,
            shape,
            panel,
            superblocks,
            x,
            totals,
            block,
            range(first_column, first_column + columns),
            ahead,
            0 if first_column else ahead_bytes,
        )
        first_column += columns


def multiply_few(
    e: Generic, shape: Shape, panel: Value, superblocks: Value, x: Value, totals: Value, block: Value, columns: Value
) -> None:
    """`multiply` of the first columns of a tile: by fours, then one or two. The other columns may hold anything."""
    b, most = e.b, min(e.split_tile(shape.n_scales, shape.n_mins, shape.signed))

    def some(first: Value, n: int) -> None:
        x_at, totals_at = e.at(x, first, 4), e.at(totals, first, 4 * e.level.tile_rows)
        for c in range(0, n, min(n, most)):
            _multiply_columns(e, shape, panel, superblocks, x_at, totals_at, block, range(c, c + min(n, most)), x, 0)

    fours = b.sdiv(b.add(columns, 1), 4)
    with e.loop(fours) as index:
        some(b.mul(index, 4), 4)
    done = b.mul(fours, 4)
    with b.if_then(b.icmp_signed("<", done, columns)):
        some(done, 2)


def _multiply_columns(
    e: Generic,
    shape: Shape,
    panel: Value,
    superblocks: Value,
    x: Value,
    totals: Value,
    block: Value,
    columns: range,
    ahead_at: Value,
    ahead_bytes: int,
) -> None:
    b, kind, record = e.b, vector(F32, e.level.tile_rows), record_bytes(e.level, shape)
    sums = [cgutils.alloca_once_value(b, e.constant(kind, 0.0)) for _ in columns]
    for each in sums:
        b.store(e.constant(kind, 0.0), each)
    block_of: Callable[..., list[Value]] = neon_tile.tile_block if e.level.tile in ("neon", "matrix") else tile_block
    with e.loop(superblocks) as index:
        w, at = e.at(panel, index, record), e.at(x, index, X_RECORD)
        if ahead_bytes:
            with b.if_then(b.icmp_signed("!=", ahead_at, 0)):
                for line in range(0, ahead_bytes, LINE):
                    e.prefetch(e.at(ahead_at, index, ahead_bytes), line, to_first=False)
        for value, each in zip(block_of(e, shape, [b.load(each) for each in sums], w, at, columns), sums, strict=True):
            b.store(value, each)
    add_to_totals(e, [b.load(each) for each in sums], columns, totals, block)


def add_to_totals(e: Generic, sums: Sequence[Value], columns: range, totals: Value, block: Value) -> None:
    """A pass's sums of some columns of a tile; the first pass, of block 0, sets the totals."""
    b, places = e.b, [4 * e.level.tile_rows * c for c in columns]
    with b.if_else(b.icmp_signed("==", block, 0)) as (first, later):
        with first:
            for value, place in zip(sums, places, strict=True):
                e.store(value, totals, place)
        with later:
            for value, place in zip(sums, places, strict=True):
                e.store(b.fadd(e.load(value.type, totals, place), value), totals, place)


def tile_block(
    e: Generic,
    shape: Shape,
    totals: Sequence[Value],
    w: Value,
    x: Value,
    columns: range,
    dots: Callable[[int, Sequence[int]], list[Value]] | None = None,
) -> list[Value]:
    """Totals + one block, for some columns of the tile. `dots`: its sums, if there already, offsets included."""
    rows = e.level.tile_rows
    kind, floats, parts = vector(I8, 4 * rows), vector(F32, rows), 8 // shape.n_scales

    def word(element: Any, c: int, section: int) -> Value:
        """Column c's number in a section: its d, or sums."""
        return e.splat(e.load(element, x, X_SECTIONS + 4 * TILE_COLUMNS * section + 4 * c), rows)

    def numbers_of(c: int) -> Callable[[Any, int], Value]:
        return lambda element, section: word(element, c, section)

    def starts(index: int, some: Sequence[int]) -> list[Value | None]:
        if sign_sums(e.level, shape):
            return [starts_at(e, shape, w, index)] * len(some)
        return [start_of(e, shape, index, e.level.tile_offset or shape.offset, numbers_of(c)) for c in some]

    def products(index: int, some: Sequence[int]) -> list[Value]:
        groups = range(index * parts, (index + 1) * parts)
        fours = [
            [lambda g=g, c=c: e.cast(e.splat(e.load(I32, x, 4 * (TILE_COLUMNS * g + c)), rows), kind) for g in groups] for c in some
        ]
        return e.dots([quants[g] for g in groups], fours, shape.signed, shape.most, starts(index, some))

    quants = [cache(lambda g=g: quants_at(e, shape, w, g)) for g in range(BLOCK // 4)]
    factors = [
        cache(lambda index=index: e.load(floats, w, rows * (BLOCK + 4 * index))) for index in range(shape.n_scales + shape.n_mins)
    ]
    results = []
    alone = dots or (e.level.column_by_column and max(shape.n_scales, shape.n_mins) > 1)
    for some in [[c] for c in columns] if alone else [list(columns)]:
        parts_of = [(dots or products)(index, some) for index in range(shape.n_scales)]
        scales, mins = [load() for load in factors[: shape.n_scales]], [load() for load in factors[shape.n_scales :]]
        for i, c in enumerate(some):
            sums, total = sums_of(e, shape, numbers_of(c)), totals[c - columns[0]]
            if len(sums) == 2:  # else LLVM converts one number, and needs a shuffle to broadcast it
                sums = [e.opaque(each) for each in sums]
            results.append(weighed(e, total, [each[i] for each in parts_of], scales, mins, sums, word(F32, c, 0)))
    return results
