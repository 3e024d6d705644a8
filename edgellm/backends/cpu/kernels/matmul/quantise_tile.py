"""A block of all the columns of a tile of activations at once, as IR, with a lane for each column, and what it has in common with
blocks of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from edgellm.backends.cpu.kernels.matmul.panel import X_SECTIONS
from edgellm.backends.cpu.simd.base import F32, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, TILE_COLUMNS


def magnitude(e: Generic, value: Value) -> Value:
    """Bits of |value|, which compare as integers do, NaN above all."""
    kind = vector(I32, value.type.count)
    return e.b.and_(e.cast(value, kind), 0x7FFFFFFF)


def larger(e: Generic, a: Value, b: Value) -> Value:
    """The larger of two integers, lane by lane."""
    return e.b.select(e.b.icmp_signed(">", a, b), a, b)


def scale_of(e: Generic, top: Value) -> tuple[Value, Value]:
    """d of blocks with these largest magnitudes, and 1 / d. Infinite and undefined values make it undefined, so that they show in
    the result.
    """
    kind = F32 if top.type == I32 else vector(F32, top.type.count)
    d = e.b.fdiv(e.cast(top, kind), 127.0)
    some = e.b.fcmp_ordered(">", d, 0.0)
    return d, e.b.select(some, e.b.fdiv(1.0, d), 0.0)


def quants_of(e: Generic, value: Value, inverse: Value) -> Value:
    """i32 lanes of the nearest quants: clipped, as 1 / d is infinite for the smallest d, and NaN has no integer."""
    scaled = e.smaller(e.b.fmul(value, inverse), e.constant(value.type, 127.0))
    return e.nearest(e.larger(scaled, e.constant(value.type, -127.0)))[1]


def with_starts(e: Generic, halves: bool, parts: list[Value]) -> list[Value]:
    """Blocks' numbers for tiles and lanes: d and minus the sums of quants, of the block and of its halves."""
    if not e.level.tile_offset:
        return parts
    d, *sums = parts
    both, first, second = (e.b.mul(each, e.level.tile_offset) for each in sums)
    return [d, both, first, second] if halves else [d, e.b.sitofp(sums[0], d.type), both, e.constant(both.type, 0)]


def write_tile(
    e: Generic, halves: bool, x: Value, x_stride: Value, record: Value, begin: Value | None = None, end: Value | None = None
) -> None:
    """A block of the rows at `x`, `x_stride` bytes apart, to the tile's record for it; not at ISA levels with `tiles`. Of rows from
    `begin` to `end` only, where these are given: others are neither read nor written.
    """
    b, lanes = e.b, e.level.tile_rows

    def address(row: int) -> Value:
        return e.at(x, x_stride, I64(row) if begin is None else _within(e, I64(row), begin, end))

    def put(value: Value, offset: int, first: int) -> None:
        if begin is None:
            e.store(value, record, offset)
        else:
            e.store_lanes(value, b.sub(begin, first), b.sub(end, first), record, offset)

    for first in range(0, TILE_COLUMNS, lanes):
        values = _turned(e, [address(first + row) for row in range(lanes)])
        d, inverse = scale_of(e, reduce(lambda p, q: larger(e, p, q), [magnitude(e, value) for value in values]))
        quants = [quants_of(e, value, inverse) for value in values]
        for g in range(BLOCK // 4):
            put(_octets(e, quants[4 * g : 4 * g + 4]), 4 * (TILE_COLUMNS * g + first), first)
        sums = [reduce(b.add, half) for half in (quants[: BLOCK // 2], quants[BLOCK // 2 :])]
        parts = [d, *(b.neg(each) for each in (b.add(*sums), *sums))]
        for index, part in enumerate(with_starts(e, halves, parts)):
            put(part, X_SECTIONS + 4 * (TILE_COLUMNS * index + first), first)


def _within(e: Generic, row: Value, begin: Value, end: Value) -> Value:
    """The nearest of the rows from `begin` to `end`."""
    last = e.b.sub(end, 1)
    row = e.b.select(e.b.icmp_signed("<", row, begin), begin, row)
    return e.b.select(e.b.icmp_signed(">", row, last), last, row)


def _turned(e: Generic, rows: Sequence[Value]) -> list[Value]:
    """A block of f32 of some rows, a vector for each place with a lane for each row."""

    def fours(place: int) -> list[Value]:
        return e.lane_per_row([e.load(vector(I32, 4), row, 4 * place) for row in rows])

    return [e.cast(word, vector(F32, len(rows))) for place in range(0, BLOCK, 4) for word in fours(place)]


def _octets(e: Generic, fours: list[Value]) -> Value:
    """Four vectors of small integers as the octets of one, the first one's lowest."""
    shifted = [e.b.shl(e.b.and_(each, 255) if i < 3 else each, 8 * i) for i, each in enumerate(fours)]
    return e.b.or_(e.b.or_(shifted[0], shifted[1]), e.b.or_(shifted[2], shifted[3]))
