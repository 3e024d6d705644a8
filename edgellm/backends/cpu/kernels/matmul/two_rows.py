"""Superblocks of two rows opened at once, as IR, for block_lanes.py at ISA levels with two `lane_rows`.

A vector has 256 bits of each row, a lane per block: even ones (0, 2, 4, 6), then odd ones, as `BLOCK_OF` says. Numbers are those of
unpack.py, operation by operation. No byte may come from outside a superblock: it could be the last one of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgellm.backends.cpu.kernels.unpack.superblock import Shape, Turned, mins_of, open_superblock, turned_quants
from edgellm.backends.cpu.kernels.unpack.unpack import BLOCK_OF, FP4_VALUES, IQ4_VALUES, mxfp4_scale, offset_table
from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import TRAITS

ROWS = 2
V4I, V16F, V16I, V64B = vector(I32, 4), vector(F32, 16), vector(I32, 16), vector(I8, 64)


class Rows:
    """A superblock of each of two rows, or two of one row, at these addresses; blocks after block `last` do not exist."""

    def __init__(self, e: Generic, name: str, addresses: Sequence[Value], last: Value | None) -> None:
        self.e, self.addresses, self.last, self.stride = e, addresses, last, TRAITS[name].block_bytes

    def sixteens(self, offset: int) -> Value:
        """i32x16: 16 bytes of each row, twice."""
        parts = [self.e.load(V4I, address, offset) for address in self.addresses]
        return self.e.join_all([part for part in parts for _ in (0, 1)])

    def word(self, offset: int) -> Value:
        """i32x16: 4 bytes of each row in all its lanes."""
        first, second = (self.e.splat(self.e.load(I32, address, offset), 16) for address in self.addresses)
        return self.e.b.select(self.e.upper_half(), second, first)

    def halves(self, offset: int) -> tuple[Value, Value]:
        """Two f16 of each row, in all its lanes, as f32."""
        both = self.e.pack([self.e.load(I32, address, offset) for address in self.addresses])
        found = self.e.from_f16(self.e.cast(both, vector(I16, 4)))
        first, second = (self.e.pick(found, [2 * row + index for row in range(ROWS) for _ in range(8)]) for index in (0, 1))
        return first, second

    def words(self, offset: int) -> list[Value]:
        """Four i32x16: 16 bytes at `offset` of each block."""

        def piece(address: Value, block: int) -> Value:
            return self.e.load(V4I, self.e.b.add(address, places[block]), offset)

        places = [self._place(block) for block in range(8)]
        return self.e.turned(
            [self.e.join_all([piece(address, block) for address in self.addresses for block in (i, i + 1)]) for i in range(0, 8, 2)]
        )

    def _place(self, block: int) -> Value:
        b, index = self.e.b, I64(block)
        if self.last is not None:
            index = b.select(b.icmp_signed("<", index, self.last), index, self.last)
        return b.mul(index, self.stride)

    def dwords(self, offset: int, size: int, places: Sequence[int], n: int = 8) -> list[Value]:
        """n i32x16: those 4 g bytes after a place for each block in the `size` (64 or 128) bytes at `offset`, for g < n."""
        lanes = [places[j] for j in BLOCK_OF]
        alike = lanes[:4] == lanes[4:]  # half of them are enough
        few, results = 4 if alike else 2, []
        for first in range(0, n, few):
            near = [place + 4 * g for g in range(first, first + few) for place in lanes[: 16 // few]]
            a, b = (self.e.dwords(address, offset, size, near) for address in self.addresses)
            for g in range(few):
                found = [*range(4 * g, 4 * g + 4)] * 2 if alike else [*range(8 * g, 8 * g + 8)]
                results.append(self.e.shuffle(a, b, [*found, *(16 + lane for lane in found)]))
        return results


def opened(e: Generic, name: str, shape: Shape, addresses: Sequence[Value], last: Value | None) -> Turned:
    """A superblock of each of two rows."""
    find = OPENERS.get(name)
    if find:
        return find(Rows(e, name, addresses, last))
    narrow = e.of_one_row()
    rows = [open_superblock(narrow, name, address, last) for address in addresses]
    numbers = (
        [e.pick(e.join_all(pair), [i + j for i in (0, 8) for j in BLOCK_OF]) for pair in zip(*of_rows, strict=True)]
        for of_rows in ([row.scales for row in rows], [mins_of(e, row.mins) for row in rows], [row.factor for row in rows])
    )
    quants = zip(*(turned_quants(narrow, row, shape.by_block) for row in rows), strict=True)
    return Turned([e.join_all(pair) for pair in quants], *numbers)


# --- parts ------------------------------------------------------------------------------------------------------------
def _lanes(e: Generic, values: Sequence[float], kind: Any = V16I) -> Value:
    """A constant with a number for each block, in their natural order."""
    return e.constant(kind, [values[j] for j in BLOCK_OF] * ROWS)


def _bits(e: Generic, words: Value, shifts: Sequence[int], masks: Sequence[int]) -> Value:
    """(words >> shift) & mask of each lane, with a shift and a mask for each block; shift < 0: to the left. It may be a rotation:
    the mask clears bits that wrap around.
    """
    if min(shifts) < 0 < max(shifts):
        words = e.call("llvm.fshr.v16i32", V16I, words, words, _lanes(e, [shift % 32 for shift in shifts]))
    elif any(shifts):
        move = e.b.lshr if max(shifts) > 0 else e.b.shl
        words = move(words, _lanes(e, [abs(shift) for shift in shifts]))
    return e.b.and_(words, _lanes(e, masks))


def _quants(e: Generic, words: Value, shifts: Sequence[int], masks: Sequence[int]) -> Value:
    """(words >> shift) & mask of each byte, as i32x16."""
    return _bits(e, words, shifts, [mask * 0x01010101 - (mask >> 7 << 32) for mask in masks])


def _bytes(e: Generic, words: Sequence[Value]) -> list[Value]:
    return [e.cast(each, V64B) for each in words]


def _low_half(e: Generic, words: Value) -> Value:
    """The f16 in the lower half of each lane, as f32."""
    return e.from_f16(e.b.trunc(words, vector(I16, 16)))


def _times(e: Generic, d: Value, integers: Value) -> Value:
    return e.b.fmul(d, e.b.sitofp(integers, V16F))


def _of_places(e: Generic, d: Value, places: Sequence[int]) -> Value:
    return e.b.fmul(d, _lanes(e, [2.0**-place for place in places], V16F)) if any(places) else d


# --- types of 32 ------------------------------------------------------------------------------------------------------
def _nibbles(rows: Rows, offset: int) -> list[Value]:
    both = rows.words(offset)
    return [_quants(rows.e, each, [shift] * 8, [15] * 8) for shift in (0, 4) for each in both]


def _fifth_bits(rows: Rows, offset: int, nibbles: Sequence[Value]) -> list[Value]:
    """`nibbles` with 16 added where a block's 32 bits have a one."""
    e, words, results = rows.e, rows.e.cast(rows.words(offset)[0], V64B), []
    for g, low in enumerate(_bytes(rows.e, nibbles)):
        octets = e.pick(words, [i // 4 * 4 + g // 2 for i in range(64)])
        bits = e.b.and_(octets, [(1 << i + 4 * (g % 2)) - (i + 4 * (g % 2) == 7) * 256 for i in range(4)] * 16)
        there = e.b.icmp_unsigned("!=", bits, 0)
        results.append(e.b.select(there, e.b.add(low, 16), low))
    return results


def _of_32(rows: Rows, quants: Sequence[Value], *, minimum: bool = False) -> Turned:
    """Types whose blocks begin with an f16 scale, and with another of what is added."""
    e, first = rows.e, rows.words(0)[0]
    mins = [e.b.fneg(_low_half(e, e.b.lshr(first, 16)))] if minimum else []
    return Turned(_bytes(e, quants), [_low_half(e, first)], mins)


def _plain(offset: int, *, minimum: bool = False) -> Callable[[Rows], Turned]:
    return lambda rows: _of_32(rows, _nibbles(rows, offset), minimum=minimum)


def _fifth(offset: int, *, minimum: bool = False) -> Callable[[Rows], Turned]:
    return lambda rows: _of_32(rows, _fifth_bits(rows, offset, _nibbles(rows, offset + 4)), minimum=minimum)


def _q8_0(rows: Rows) -> Turned:
    e = rows.e
    return _of_32(rows, [e.b.xor(each, -0x7F7F7F80) for offset in (2, 18) for each in rows.words(offset)])


def _looked_up(e: Generic, table: Sequence[int], indices: Sequence[Value]) -> list[Value]:
    return [e.lookup(table, each) for each in _bytes(e, indices)]


def _iq4_nl(rows: Rows) -> Turned:
    return _of_32(rows, _looked_up(rows.e, offset_table(IQ4_VALUES, 128), _nibbles(rows, 2)))


def _mxfp4(rows: Rows) -> Turned:
    e = rows.e
    exponent = e.b.and_(rows.words(0)[0], 255)
    return Turned(_looked_up(e, offset_table(FP4_VALUES, 16), _nibbles(rows, 1)), [mxfp4_scale(e, exponent)])


# --- types of 256 -----------------------------------------------------------------------------------------------------
PAIRS, FOURS = [j // 2 * 32 for j in range(8)], [j // 4 * 32 for j in range(8)]  # where blocks' quants begin, that share bytes


def _sixes(rows: Rows, places: Sequence[int]) -> tuple[list[Value], list[Value]]:
    """Scales and mins of Q4_K and Q5_K; `places`: see `unpack._q4_or_q5_k`."""
    e, at, numbers, last = rows.e, [8 * (j % 4) for j in range(8)], [], rows.word(12)
    d, least = rows.halves(0)
    for offset, shift, factor in ((4, 0, _of_places(e, d, [*places] * 4)), (8, 4, least)):
        six = _bits(e, rows.word(offset), [*at[:4], *(each + 2 for each in at[4:])], [63] * 4 + [48] * 4)
        low = _bits(e, last, [each + shift for each in at], [0] * 4 + [15] * 4)
        numbers.append([_times(e, factor, e.b.or_(six, low))])
    return numbers[0], numbers[1]


def _q4_k(rows: Rows) -> Turned:
    raw = rows.dwords(16, 128, PAIRS)
    return Turned(_bytes(rows.e, [_quants(rows.e, each, [0] * 8, [15, 240] * 4) for each in raw]), *_sixes(rows, (0, 4)))


def _q5_k(rows: Rows) -> Turned:
    e = rows.e
    quants = [
        e.b.or_(_quants(e, low, [0, 4] * 4, [15] * 8), _quants(e, high, range(-4, 4), [16] * 8))
        for low, high in zip(rows.dwords(48, 128, PAIRS), rows.dwords(16, 64, [0] * 8), strict=True)
    ]
    return Turned(_bytes(e, quants), *_sixes(rows, (0, 0)))


def _q6_k(rows: Rows) -> Turned:
    e, scales, (_, d), numbers = rows.e, rows.sixteens(192), rows.halves(206), []
    low, high = rows.dwords(0, 128, [j // 4 * 64 + j % 2 * 32 for j in range(8)]), rows.dwords(128, 64, FOURS)
    quants = [
        e.b.or_(_quants(e, a, [0, 0, 4, 4] * 2, [15] * 8), _quants(e, b, [-4, -2, 0, 2] * 2, [48] * 8))
        for a, b in zip(low, high, strict=True)
    ]
    for half in (8, 0):  # to the top of a lane
        left = e.b.shl(scales, _lanes(e, [16 + half, half] * 4))
        numbers.append(_times(e, d, e.b.ashr(left, 24)))
    return Turned(_bytes(e, quants), numbers)


def _q2_k(rows: Rows) -> Turned:
    e, scales, (d, least), places = rows.e, rows.sixteens(0), rows.halves(80), [0, 2, 4, 6] * 2
    quants = [_quants(e, each, [0] * 8, [3 << place for place in places]) for each in rows.dwords(16, 64, FOURS)]
    integers, mins = [[_bits(e, scales, [shift + half, shift + half + 16] * 4, [15] * 8) for half in (0, 8)] for shift in (0, 4)]
    return Turned(
        _bytes(e, quants),
        [e.b.sitofp(each, V16F) for each in integers],
        mins_of(e, [_times(e, least, each) for each in mins]),
        [_of_places(e, d, places)],
    )


def _q3_k(rows: Rows) -> Turned:
    e, (_, d), high_bits, numbers = rows.e, rows.halves(106), rows.word(104), []
    quants = [
        e.b.or_(_quants(e, low, [0, 2, 4, 6] * 2, [3] * 8), _quants(e, high, range(-2, 6), [4] * 8))
        for low, high in zip(rows.dwords(32, 64, FOURS), rows.dwords(0, 64, [0] * 8), strict=True)
    ]
    twice = [4 * part + word for part in range(4) for word in (1, 2, 1, 2)]  # words 1 and 2 of each row
    low_bits = e.pick(rows.sixteens(92), twice)
    for half in (0, 8):
        at = [half + j % 2 * 16 for j in range(8)]
        six = e.b.or_(
            _bits(e, low_bits, [each + j // 4 * 4 for j, each in enumerate(at)], [15] * 8),
            _bits(e, high_bits, [each + j // 2 * 2 - 4 for j, each in enumerate(at)], [48] * 8),
        )
        numbers.append(e.b.sitofp(e.b.sub(six, 32), V16F))
    return Turned(_bytes(e, quants), numbers, factor=[d])


def _iq4_xs(rows: Rows) -> Turned:
    e = rows.e
    six = e.b.or_(_bits(e, rows.word(4), range(0, 32, 4), [15] * 8), _bits(e, rows.word(0), range(12, 28, 2), [48] * 8))
    raw = rows.dwords(8, 128, range(0, 128, 16), 4)
    indices = [_quants(e, each, [shift] * 8, [15] * 8) for shift in (0, 4) for each in raw]
    return Turned(_looked_up(e, offset_table(IQ4_VALUES, 128), indices), [_times(e, rows.halves(0)[0], e.b.sub(six, 32))])


OPENERS: dict[str, Callable[[Rows], Turned]] = {
    "Q4_0": _plain(2),
    "Q4_1": _plain(4, minimum=True),
    "Q5_0": _fifth(2),
    "Q5_1": _fifth(4, minimum=True),
    "Q8_0": _q8_0,
    "IQ4_NL": _iq4_nl,
    "MXFP4": _mxfp4,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs,
}
