"""Superblocks of some types opened for all rows of a group at once, as IR: raw words are interleaved first, a lane per row.

Half as many bytes are shuffled as when panel.py opens row by row, and scales of six bits are decoded in vectors. Numbers are those
of unpack.py, operation by operation. No word may come from outside a superblock: it could be the last one of a file.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgellm.backends.cpu.kernels.superblock import mins_of
from edgellm.backends.cpu.kernels.unpack import IQ4_VALUES
from edgellm.backends.cpu.simd.base import F32, I8, I16, vector
from edgellm.backends.cpu.simd.generic import Generic

Value = Any                                      # ir.Value: llvmlite has no static types
Words = Callable[[int], Sequence[Value]]         # four words of every row, from so many bytes after its superblock's start
Put = Callable[[int, int, Value], None]          # block, g, quants: of every row four quants, from 4 g on
PutNumber = Callable[[int, int, Value], None]    # block, index, f32: what comes index-th after the quants of a block
Opener = Callable[[Generic, Words, Put, PutNumber], None]


def opener(e: Generic, name: str) -> Opener | None:
    """What opens a superblock of a group of rows; None where rows are opened one by one. Quants are as unpack.py has them with
    `wide_quants`, mins are for a `tile_offset`.
    """
    return OPENERS.get(name) if e.tile_offset and e.wide_quants else None


def _bits(e: Generic, words: Value, shift: int, mask: int) -> Value:
    """(words >> shift) & mask in each byte; shift < 0: to the left. No bit of `mask` may come from outside its byte."""
    if shift:
        move = e.b.lshr if shift > 0 else e.b.shl
        words = move(words, e.constant(words.type, abs(shift)))
    return e.b.and_(words, e.constant(words.type, mask * 0x01010101 - (mask >> 7 << 32)))


def _byte(e: Generic, words: Value, shift: int, mask: int) -> Value:
    """(words >> shift) & mask."""
    return e.b.and_(e.b.lshr(words, e.constant(words.type, shift)) if shift else words, e.constant(words.type, mask))


def _f16(e: Generic, words: Value, upper: bool) -> Value:
    """The lower or upper half of each word, an f16, as f32."""
    half = e.b.lshr(words, e.constant(words.type, 16)) if upper else words
    return e.from_f16(e.b.trunc(half, vector(I16, words.type.count)))


def _times(e: Generic, d: Value, whole: Value) -> Value:
    return e.b.fmul(d, e.b.sitofp(whole, vector(F32, whole.type.count)))


def _q2_k(e: Generic, words: Words, put: Put, put_number: PutNumber) -> None:
    halves = words(68)[3]
    d, least = _f16(e, halves, False), _f16(e, halves, True)
    by_place = [e.b.fmul(d, e.constant(d.type, 2.0**-place)) if place else d for place in (0, 2, 4, 6)]
    for w, numbers in enumerate(words(0)):
        for j, at in ((2 * w, 0), (2 * w + 1, 16)):
            mins = [_times(e, least, _byte(e, numbers, at + 8 * half + 4, 15)) for half in (0, 1)]
            for half, minimum in enumerate(mins_of(e, mins)):
                put_number(j, half, _times(e, by_place[j % 4], _byte(e, numbers, at + 8 * half, 15)))
                put_number(j, 2 + half, minimum)
    for half in (0, 1):
        for first in (0, 4):
            for g, raw in enumerate(words(16 + 32 * half + 4 * first), first):
                for j in range(4):
                    put(4 * half + j, g, _bits(e, raw, 0, 3 << 2 * j))


def _q3_k(e: Generic, words: Words, put: Put, put_number: PutNumber) -> None:
    d, (_, *low, high) = _f16(e, words(94)[3], True), words(92)
    for n in range(16):
        six = e.b.or_(_byte(e, low[n // 4 % 2], 8 * (n % 4) + n // 8 * 4, 15),
                      e.b.shl(_byte(e, high, 8 * (n % 4) + n // 4 * 2, 3), e.constant(high.type, 4)))
        put_number(n // 2, n % 2, _times(e, d, e.b.sub(six, e.constant(six.type, 32))))
    third = [*words(0), *words(16)]
    for half in (0, 1):
        for first in (0, 4):
            for g, raw in enumerate(words(32 + 32 * half + 4 * first), first):
                for j in range(4):
                    put(4 * half + j, g, e.b.or_(_bits(e, raw, 2 * j, 3), _bits(e, third[g], 4 * half + j - 2, 4)))


def _sixes(e: Generic, header: Sequence[Value], places: Sequence[int], put_number: PutNumber) -> None:
    """Scales and mins of Q4_K and Q5_K; `places`: see `unpack._q4_or_q5_k`."""
    halves, scales, mins, last = header
    d, least = _f16(e, halves, False), _f16(e, halves, True)
    by_place = [e.b.fmul(d, e.constant(d.type, 2.0**-place)) if place else d for place in places]
    for j in range(8):
        at = 8 * (j % 4)
        for number, (words, shift, factor) in enumerate(((scales, 0, by_place[j % 2]), (mins, 4, least))):
            if j < 4:
                six = _byte(e, words, at, 63)
            else:
                six = e.b.or_(_byte(e, last, at + shift, 15), _byte(e, words, at + 2, 48))
            put_number(j, number, _times(e, factor, six))


def _q4_k(e: Generic, words: Words, put: Put, put_number: PutNumber) -> None:
    _sixes(e, words(0), (0, 4), put_number)
    for pair in range(4):
        for first in (0, 4):
            for g, raw in enumerate(words(16 + 32 * pair + 4 * first), first):
                put(2 * pair, g, _bits(e, raw, 0, 15))
                put(2 * pair + 1, g, _bits(e, raw, 0, 240))


def _q5_k(e: Generic, words: Words, put: Put, put_number: PutNumber) -> None:
    _sixes(e, words(0), (0, 0), put_number)
    fifth = [*words(16), *words(32)]
    for pair in range(4):
        for first in (0, 4):
            for g, raw in enumerate(words(48 + 32 * pair + 4 * first), first):
                for j, shift in ((2 * pair, 0), (2 * pair + 1, 4)):
                    put(j, g, e.b.or_(_bits(e, raw, shift, 15), _bits(e, fifth[g], j - 4, 16)))


def _q6_k(e: Generic, words: Words, put: Put, put_number: PutNumber) -> None:
    d = _f16(e, words(194)[3], True)
    for w, scales in enumerate(words(192)):
        for i in range(4):
            left = e.b.shl(scales, e.constant(scales.type, 24 - 8 * i)) if i < 3 else scales
            put_number(2 * w + i // 2, i % 2, _times(e, d, e.b.ashr(left, e.constant(scales.type, 24))))
    for half in (0, 1):
        high = [*words(128 + 32 * half), *words(144 + 32 * half)]
        for odd in (0, 1):
            for first in (0, 4):
                for g, raw in enumerate(words(64 * half + 32 * odd + 4 * first), first):
                    for j, shift in ((odd, 0), (odd + 2, 4)):
                        put(4 * half + j, g, e.b.or_(_bits(e, raw, shift, 15), _bits(e, high[g], 2 * j - 4, 48)))


def _iq4_xs(e: Generic, words: Words, put: Put, put_number: PutNumber) -> None:
    first, low, _, _ = words(0)
    d, table = _f16(e, first, False), [(value + 256) % 256 - 128 for value in IQ4_VALUES]
    for j in range(8):
        six = e.b.or_(_byte(e, low, 4 * j, 15), e.b.shl(_byte(e, first, 16 + 2 * j, 3), e.constant(first.type, 4)))
        put_number(j, 0, _times(e, d, e.b.sub(six, e.constant(six.type, 32))))
        for g, raw in enumerate(words(8 + 16 * j)):
            for half in (0, 1):
                index = e.cast(_bits(e, raw, 4 * half, 15), vector(I8, 4 * raw.type.count))
                put(j, 4 * half + g, e.lookup(table, index))


OPENERS: dict[str, Opener] = {
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_XS": _iq4_xs,
}
