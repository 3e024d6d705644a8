"""Superblocks opened for all rows of a group at once, as IR: words of the file are interleaved first, so that a lane has a row.

Half as many bytes are shuffled as when panel.py opens row by row, and scales of six bits are decoded in vectors; of weights that
lie interleaved in memory (row_words.py) nothing is shuffled. Numbers are those of unpack.py, operation by operation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Protocol

from edgellm.backends.cpu.kernels.unpack.row_words import InterleavedRows, RowWords, There
from edgellm.backends.cpu.kernels.unpack.superblock import BLOCKS, mins_of
from edgellm.backends.cpu.kernels.unpack.unpack import FP4_VALUES, IQ4_VALUES, mxfp4_scale, offset_table
from edgellm.backends.cpu.simd.base import F32, I8, I32, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import SUPERBLOCK, TRAITS
from edgellm.formats.interleave import PACKED


class Target(Protocol):
    """Receives an opened superblock, block by block or several at a time."""

    def quants(self, block: int, g: int, value: Value, place: int = 0) -> None:
        """Of every row the four quants from 4 g on, as multiples by 2^place, of which the block's scales know."""

    def number(self, block: int, index: int, value: Value) -> None:
        """The index-th vector after the quants of a block: scales, then mins, then a factor (see unpack.py). f32, but i32 are
        scales that a factor belongs to, and come before the quants.
        """

    def done(self, block: int) -> None:
        """Nothing more of this block will come."""


WIDE_GROUP = 16  # rows; of eight at once, types of 32 are opened no faster than row by row
AS_THEY_ARE = (0,) * BLOCKS  # places of quants that are no multiples
Opener = Callable[[Generic, RowWords, Target], None]
BlockOpener = Callable[[Generic, RowWords, int, int, Target], None]  # words, the block's offset, its number, target


def opens_file(e: Generic, name: str) -> bool:
    """True if this module opens rows as the file has them; otherwise they are opened one by one."""
    if not (e.level.tile_offset and e.level.wide_quants):
        return False
    return name in OPENERS or (name in BLOCK_OPENERS and e.level.tile_rows == WIDE_GROUP)


def open_rows(e: Generic, name: str, words: RowWords, target: Target, there: There = lambda block: nullcontext()) -> None:
    """A superblock of a group of rows. Quants are as unpack.py has them with `wide_quants`, mins are for a `tile_offset`."""
    if isinstance(words, InterleavedRows) and name in PACKED:
        PACKED_OPENERS[name](e, words, target)
        return
    if name in OPENERS:
        OPENERS[name](e, words, target)
        return
    for j in range(BLOCKS):
        with there(j):
            open_block(e, name, words, target, j)


def open_block(e: Generic, name: str, words: RowWords, target: Target, block: int = 0) -> None:
    """A block of a group of rows of a type of 32."""
    BLOCK_OPENERS[name](e, words, block * TRAITS[name].block_bytes, block, target)
    target.done(block)


def bits(e: Generic, words: Value, shift: int, mask: int) -> Value:
    """(words >> shift) & mask in each byte; shift < 0: to the left. No bit of `mask` may come from outside its byte."""
    if shift:
        move = e.b.lshr if shift > 0 else e.b.shl
        words = move(words, e.constant(words.type, abs(shift)))
    return e.b.and_(words, mask * 0x01010101 - (mask >> 7 << 32))


def _byte(e: Generic, words: Value, shift: int, mask: int) -> Value:
    """(words >> shift) & mask."""
    return e.b.and_(e.b.lshr(words, shift) if shift else words, mask)


def _times(e: Generic, d: Value, integers: Value) -> Value:
    return e.b.fmul(d, e.b.sitofp(integers, vector(F32, integers.type.count)))


def _by_place(e: Generic, d: Value, places: Sequence[int]) -> dict[int, Value]:
    """d of quants that are multiples by 2^place."""
    return {place: e.b.fmul(d, 2.0**-place) if place else d for place in sorted({*places})}


# --- types of 256 -----------------------------------------------------------------------------------------------------
def _q2_k(e: Generic, words: RowWords, target: Target) -> None:
    d, least = words.f16(80), words.f16(82)
    by_place, numbers = _by_place(e, d, (0, 2, 4, 6)), words.words(0, 4)
    for half in (0, 1):
        for j in range(4 * half, 4 * half + 4):
            at = j % 2 * 16
            mins = [_times(e, least, _byte(e, numbers[j // 2], at + 8 * part + 4, 15)) for part in (0, 1)]
            for part, minimum in enumerate(mins_of(e, mins)):
                target.number(j, part, _byte(e, numbers[j // 2], at + 8 * part, 15))
                target.number(j, 2 + part, minimum)
            target.number(j, 4, by_place[j % 4 * 2])
        raw = words.words(16 + 32 * half, 8)
        for j in range(4):
            for g in range(8):
                target.quants(4 * half + j, g, bits(e, raw[g], 0, 3 << 2 * j), 2 * j)
            target.done(4 * half + j)


def _q3_k_scales(e: Generic, words: RowWords, places: Sequence[int]) -> Callable[[int, Target], None]:
    """Gives both scales of a block to the target."""
    by_place, low, high = _by_place(e, words.f16(108), places), words.words(96, 2), words.word(104)

    def give(j: int, target: Target) -> None:
        for n in (2 * j, 2 * j + 1):
            six = e.b.or_(
                _byte(e, low[n // 4 % 2], 8 * (n % 4) + n // 8 * 4, 15), e.b.shl(_byte(e, high, 8 * (n % 4) + n // 4 * 2, 3), 4)
            )
            target.number(j, n % 2, e.b.sub(six, 32))
        target.number(j, 2, by_place[places[j]])

    return give


def _q3_k(e: Generic, words: RowWords, target: Target) -> None:
    give, third = _q3_k_scales(e, words, AS_THEY_ARE), words.words(0, 8)
    for half in (0, 1):
        for j in range(4 * half, 4 * half + 4):
            give(j, target)
        raw = words.words(32 + 32 * half, 8)
        for j in range(4):
            for g in range(8):
                target.quants(4 * half + j, g, e.b.or_(bits(e, raw[g], 2 * j, 3), bits(e, third[g], 4 * half + j - 2, 4)))
            target.done(4 * half + j)


def _sixes(e: Generic, words: RowWords, places: Sequence[int]) -> Callable[[int, Target], None]:
    """Gives scale and minimum of a block of Q4_K or Q5_K to the target."""
    least, (scales, mins, last) = words.f16(2), words.words(4, 3)
    by_place = _by_place(e, words.f16(0), places)

    def give(j: int, target: Target) -> None:
        at = 8 * (j % 4)
        for number, (six_bits, shift, factor) in enumerate(((scales, 0, by_place[places[j]]), (mins, 4, least))):
            if j < 4:
                six = _byte(e, six_bits, at, 63)
            else:
                six = e.b.or_(_byte(e, last, at + shift, 15), _byte(e, six_bits, at + 2, 48))
            target.number(j, number, _times(e, factor, six))

    return give


def _q4_k(e: Generic, words: RowWords, target: Target) -> None:
    give = _sixes(e, words, (0, 4) * 4)  # quants of every other block stay where they are
    for pair in range(4):
        for j in (2 * pair, 2 * pair + 1):
            give(j, target)
        for g in range(8):
            raw = words.word(16 + 32 * pair + 4 * g)
            target.quants(2 * pair, g, bits(e, raw, 0, 15))
            target.quants(2 * pair + 1, g, bits(e, raw, 0, 240))
        for j in (2 * pair, 2 * pair + 1):
            target.done(j)


def _q5_k(e: Generic, words: RowWords, target: Target) -> None:
    give, fifth = _sixes(e, words, AS_THEY_ARE), words.words(16, 8)
    for pair in range(4):
        for j in (2 * pair, 2 * pair + 1):
            give(j, target)
        raw = words.words(48 + 32 * pair, 8)
        for j, shift in ((2 * pair, 0), (2 * pair + 1, 4)):
            for g in range(8):
                target.quants(j, g, e.b.or_(bits(e, raw[g], shift, 15), bits(e, fifth[g], j - 4, 16)))
            target.done(j)


def _q6_k(e: Generic, words: RowWords, target: Target) -> None:
    d, numbers = words.f16(208), words.words(192, 4)
    for half in (0, 1):
        for n in range(8 * half, 8 * half + 8):
            scales, i = numbers[n // 4], n % 4
            left = e.b.shl(scales, 24 - 8 * i) if i < 3 else scales
            target.number(n // 2, i % 2, _times(e, d, e.b.ashr(left, 24)))
        high = words.words(128 + 32 * half, 8)
        for odd in (0, 1):
            raw = words.words(64 * half + 32 * odd, 8)
            for j, shift in ((odd, 0), (odd + 2, 4)):
                for g in range(8):
                    target.quants(4 * half + j, g, e.b.or_(bits(e, raw[g], shift, 15), bits(e, high[g], 2 * j - 4, 48)))
                target.done(4 * half + j)


def _iq4_xs(e: Generic, words: RowWords, target: Target) -> None:
    d, first, low = words.f16(0), words.word(0), words.word(4)
    for j in range(8):
        six = e.b.or_(_byte(e, low, 4 * j, 15), e.b.shl(_byte(e, first, 16 + 2 * j, 3), 4))
        target.number(j, 0, _times(e, d, e.b.sub(six, 32)))
        _looked_up(e, words.words(8 + 16 * j, 4), IQ4_VALUES, 128, j, target)
        target.done(j)


OPENERS: dict[str, Opener] = {"Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_XS": _iq4_xs}


# --- types of 256 whose bits are packed in another way in memory ------------------------------------------------------
def _packed(name: str, scales: Callable[[Generic, RowWords, Sequence[int]], Callable[[int, Target], None]]) -> Opener:
    """Quants stay at the place of their highest bits."""
    fields = PACKED[name]
    places = [block[0].shift - block[0].bit for block in fields]

    def open_superblock(e: Generic, words: RowWords, target: Target) -> None:
        give = scales(e, words, places)
        for j, block in enumerate(fields):
            give(j, target)
            for g in range(8):
                parts = [
                    bits(
                        e, words.word(each.at + 4 * g), each.shift - each.bit - places[j], (1 << each.n) - 1 << each.bit + places[j]
                    )
                    for each in block
                ]
                target.quants(j, g, functools.reduce(e.b.or_, parts), places[j])
            target.done(j)

    return open_superblock


PACKED_OPENERS: dict[str, Opener] = {"Q3_K": _packed("Q3_K", _q3_k_scales)}
assert PACKED_OPENERS.keys() == PACKED.keys()


# --- types of 32 ------------------------------------------------------------------------------------------------------
def _looked_up(e: Generic, raw: Sequence[Value], values: Sequence[int], offset: int, block: int, target: Target) -> None:
    """Quants of a table, by nibbles."""
    table = offset_table(values, offset)
    for g, word in enumerate(raw):
        for half in (0, 1):
            index = e.cast(bits(e, word, 4 * half, 15), vector(I8, 4 * word.type.count))
            target.quants(block, 4 * half + g, e.lookup(table, index))


def _numbers(words: RowWords, at: int, block: int, target: Target, *, minimum: bool) -> int:
    """Scale and minimum; the offset of what comes after them."""
    target.number(block, 0, words.f16(at))
    if minimum:  # what is added in these types
        target.number(block, 1, words.e.b.fneg(words.f16(at + 2)))
    return at + 4 if minimum else at + 2


def _nibbles(minimum: bool) -> BlockOpener:
    def open_block(e: Generic, words: RowWords, at: int, block: int, target: Target) -> None:
        for g, word in enumerate(words.words(_numbers(words, at, block, target, minimum=minimum), 4)):
            for half in (0, 1):
                target.quants(block, 4 * half + g, bits(e, word, 4 * half, 15))

    return open_block


def _fifth_bits(minimum: bool) -> BlockOpener:
    def open_block(e: Generic, words: RowWords, at: int, block: int, target: Target) -> None:
        first = _numbers(words, at, block, target, minimum=minimum)
        fifth = e.cast(words.word(first), vector(I8, 4 * e.level.tile_rows))
        for g, word in enumerate(words.words(first + 4, 4)):
            for half in (0, 1):
                octet, bit = 2 * half + g // 2, g % 2 * 4  # of each row's 32 bits
                octets = e.pick(fifth, [i // 4 * 4 + octet for i in range(4 * e.level.tile_rows)])
                ones = e.constant(fifth.type, [(1 << bit + i) - (bit + i == 7) * 256 for i in range(4)] * e.level.tile_rows)
                low = e.cast(bits(e, word, 4 * half, 15), fifth.type)
                there = e.b.icmp_unsigned("!=", e.b.and_(octets, ones), 0)
                target.quants(block, 4 * half + g, e.b.select(there, e.b.add(low, 16), low))

    return open_block


def _q8_0(e: Generic, words: RowWords, at: int, block: int, target: Target) -> None:
    for g, word in enumerate(words.words(_numbers(words, at, block, target, minimum=False), 8)):
        target.quants(block, g, e.b.xor(word, -0x7F7F7F80))


def _iq4_nl(e: Generic, words: RowWords, at: int, block: int, target: Target) -> None:
    _looked_up(e, words.words(_numbers(words, at, block, target, minimum=False), 4), IQ4_VALUES, 128, block, target)


def _mxfp4(e: Generic, words: RowWords, at: int, block: int, target: Target) -> None:
    target.number(block, 0, mxfp4_scale(e, e.b.zext(words.octet(at), vector(I32, e.level.tile_rows))))
    _looked_up(e, words.words(at + 1, 4), FP4_VALUES, 16, block, target)


BLOCK_OPENERS: dict[str, BlockOpener] = {
    "Q4_0": _nibbles(False),
    "Q4_1": _nibbles(True),
    "Q5_0": _fifth_bits(False),
    "Q5_1": _fifth_bits(True),
    "Q8_0": _q8_0,
    "IQ4_NL": _iq4_nl,
    "MXFP4": _mxfp4,
}
assert all(TRAITS[name].block == SUPERBLOCK for name in OPENERS)
