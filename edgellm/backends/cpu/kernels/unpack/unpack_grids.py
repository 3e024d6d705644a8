"""Unpackers of the IQ types with grids, written as IR: see unpack.py. Points come from tables, eight (or four) quants at a time.

Of all signs of a superblock a vector is made first, a bit for each quant in the order of quants; sums of one column then take the
activations with these signs and the points as they are in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from edgellm.backends.cpu.kernels.unpack.tables import Numbers, hidden, put, room, table
from edgellm.backends.cpu.kernels.unpack.unpack import Quants, Superblock, _few, _half, _halves
from edgellm.backends.cpu.simd.base import F64, I8, I16, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, V16B, V32B, Blocks, Generic
from edgellm.formats.codecs._grids import grid

Index = Callable[[int], Value]  # of a point: in bytes of the table or by number
V8H, V16H, V32H = vector(I16, 8), vector(I16, 16), vector(I16, 32)


@dataclass(frozen=True, slots=True)
class SignedSuperblock(Superblock):
    """A superblock that also gives the sizes of its quants, at most `widest`, and which of them are negative (i1 lanes)."""

    sizes: Quants = lambda q, h: None
    negative: Quants = lambda q, h: None
    widest: int = 0


# --- parts ------------------------------------------------------------------------------------------------------------
def _pieces(e: Generic, q: int, h: int, by_block: bool) -> list[tuple[int, int]]:
    """The half blocks (block, half) in the vector quants(q, h)."""
    return _halves(e, q, h) if by_block else [(j, h) for j in _few(e, q)]


def _packed(points: Any, plus: int = 0, times: int = 1) -> list[int]:
    """Points as integers, the first coordinate in the lowest byte."""
    quants = (points.astype(np.int64) * times + plus).astype(np.uint8)
    return [int.from_bytes(row.tobytes(), "little") for row in quants]


def _looked_up(e: Generic, base: Value, index: Index, pieces: Sequence[tuple[int, int]], coordinates: int, scaled: bool) -> Value:
    """Quants of half blocks from the table at `base`. `scaled`: an index counts bytes."""
    per_half, size = 16 // coordinates, F64 if coordinates == 8 else I32  # of two doubles the second is loaded into its place
    numbers = [2 * per_half * j + per_half * half + i for j, half in pieces for i in range(per_half)]
    offsets = [index(n) if scaled else e.b.mul(index(n), coordinates) for n in numbers]
    words = [e.load(size, e.b.add(base, offset)) for offset in offsets]
    halves = [e.cast(e.pack(words[i : i + per_half]), V16B) for i in range(0, len(words), per_half)]
    return e.join_all(halves)


def _numbers(e: Generic, name: str, block: Blocks) -> Numbers:
    """Those of `POINTS`, through memory."""
    if block.points is not None:
        return Numbers(e, block.points)
    address = room(e, POINTS_BYTES)
    put(e, POINTS[name](e, block(0)), address)
    return Numbers(e, hidden(e, address))


def _bytes(e: Generic, address: Value, offset: int) -> Index:
    """Numbers of a byte each."""
    return lambda i: e.b.zext(e.load(I8, address, offset + i), I64)


def _negative(e: Generic, signs: Callable[[int], Value], by_block: bool) -> Quants:
    """Which quants have their bit set: `signs(g)`, in each 128 bits, are the 16 bytes of blocks 4 g to 4 g + 3."""

    def lanes(q: int, h: int) -> Value:
        pieces = _pieces(e, q, h, by_block)
        group = signs(pieces[0][0] // 4)
        spread = e.pick(group, _within(4 * (j % 4) + 2 * half + i // 8 for j, half in pieces for i in range(16)))
        bit = e.constant(spread.type, [(1 << i % 8) - (256 if i % 8 == 7 else 0) for i in range(spread.type.count)])
        return e.b.icmp_unsigned("==", e.b.and_(spread, bit), bit)

    return cache(lanes)


def _signed(e: Generic, sizes: Quants, negative: Quants, scales: Sequence[Value], widest: int) -> Superblock:
    """Sizes and signs put together; with an offset where the ISA level multiplies unsigned quants faster."""
    offset = 128 if e.level.wide_quants else 0
    sizes = cache(sizes)

    def quants(q: int, h: int) -> Value:
        signed = e.negated(sizes(q, h), negative(q, h))
        return e.b.xor(signed, -128) if offset else signed

    return SignedSuperblock(quants, scales, 255 if offset else widest, offset, (), not offset, (), sizes, negative, widest)


def _even(e: Generic, sevens: Value) -> Value:
    """Sign bytes (i8x32) of seven bits each: the eighth makes the number of ones even."""

    def shifted(value: Value, by: int) -> Value:
        return e.b.lshr(value, by)

    words = e.cast(sevens, V8I)  # what a shift brings in from the next byte never gets to the lowest bit
    parity = e.b.xor(words, shifted(words, 4))
    parity = e.b.xor(parity, shifted(parity, 2))
    parity = e.b.and_(e.b.xor(parity, shifted(parity, 1)), 0x01010101)
    return e.cast(e.b.or_(words, e.b.shl(parity, 7)), V32B)


def _apart(e: Generic, words: Value) -> Value:
    """Four fields of seven bits each of i32x8, to bytes."""
    result = e.b.and_(words, 0x7F)
    for i in (1, 2, 3):
        field = e.b.and_(e.b.shl(words, i), 0x7F << 8 * i)
        result = e.b.or_(result, field)
    return e.cast(result, V32B)


def _within(lanes: Iterable[int]) -> list[int]:
    """Lanes of 16 bytes that each 128 bits of a vector have, for each to be taken from its own."""
    return [i // 16 * 16 + lane for i, lane in enumerate(lanes)]


def _groups(e: Generic, thirty_two: Value) -> Callable[[int], Value]:
    """The halves of i8x32, as often as they fill a vector; both in one where blocks lie apart. Of 256 bits LLVM would take bytes by
    shuffles across the middle.
    """
    if e.apart:
        return lambda g: thirty_two
    hide = e.opaque if e.level.together == 2 else lambda value: value
    return cache(lambda g: hide(e.pick(thirty_two, [*range(16 * g, 16 * g + 16)] * e.level.together)))


def _loaded_groups(e: Generic, p: Value, offset: int) -> Callable[[int], Value]:
    if e.apart:
        return cache(lambda g: e.load(V32B, p, offset))
    return cache(lambda g: e.sixteens(p, offset + 16 * g, [0] * e.level.together))


def _half_plus(e: Generic, d: Value, sc: Value, factor: float) -> Value:
    """d * (0.5 + sc) * factor, in the codecs' order."""
    plus = e.b.fadd(0.5, e.b.sitofp(sc, V8F))
    return e.b.fmul(e.b.fmul(d, plus), factor)


def _odd(e: Generic, d: Value, sc: Value) -> Value:
    """d * (1 + 2 sc)."""
    return e.b.fmul(d, e.b.sitofp(e.b.add(e.b.shl(sc, 1), 1), V8F))


def _nibble_scales(e: Generic, p: Value, offset: int) -> list[Value]:
    """i32x8 of the low nibbles of eight bytes, and of the high ones: of first and second halves."""
    wide = e.b.zext(e.load(vector(I8, 8), p, offset), V8I)
    return [e.b.and_(wide, 15), e.b.lshr(wide, 4)]


# --- two and three bits -----------------------------------------------------------------------------------------------
def _iq2_xxs(e: Generic, block: Blocks) -> Superblock:
    """Of each block four bytes of points, then a word of four signs of seven bits and a scale."""
    p = block(0)
    base = table(e, "iq2_xxs", _packed(grid("IQ2_XXS")), 64)
    both = e.join_all([e.load(V8I, p, 2), e.load(V8I, p, 34)])
    words = e.pick(both, range(1, 16, 2))
    points = _bytes(e, p, 2)
    negative = _negative(e, _groups(e, _even(e, _apart(e, words))), by_block=False)
    d = _half_plus(e, _half(e, p, 0), e.b.lshr(words, 28), 0.25)
    return _signed(
        e,
        lambda q, h: _looked_up(e, base, lambda n: points(n // 4 * 8 + n % 4), _pieces(e, q, h, False), 8, False),
        negative,
        [d],
        43,
    )


def _iq2_xs(e: Generic, block: Blocks) -> Superblock:
    """Words of nine bits of a point and seven of its signs; a nibble of scale for each half block."""
    p = block(0)
    base = table(e, "iq2_xs", _packed(grid("IQ2_XS")), 64)
    words = e.load(V32H, p, 2)
    sevens = e.b.trunc(e.b.lshr(words, 9), V32B)
    d = _half(e, p, 0)
    scales = [_half_plus(e, d, sc, 0.25) for sc in _nibble_scales(e, p, 66)]
    index = _numbers(e, "IQ2_XS", block)
    return _signed(
        e,
        lambda q, h: _looked_up(e, base, index, _pieces(e, q, h, True), 8, False),
        _negative(e, _groups(e, _even(e, sevens)), by_block=True),
        scales,
        43,
    )


def _iq2_s(e: Generic, block: Blocks) -> Superblock:
    """Points of eight bits and two more of each four in a byte; signs of their own; a nibble of scale for each half block."""
    p = block(0)
    base = table(e, "iq2_s", _packed(grid("IQ2_S")), 64)
    d = _half(e, p, 0)
    scales = [_half_plus(e, d, sc, 0.25) for sc in _nibble_scales(e, p, 74)]
    index = _numbers(e, "IQ2_S", block)
    return _signed(
        e,
        lambda q, h: _looked_up(e, base, index, _pieces(e, q, h, True), 8, True),
        _negative(e, _loaded_groups(e, p, 34), by_block=True),
        scales,
        43,
    )


def _iq3_xxs(e: Generic, block: Blocks) -> Superblock:
    """A byte for each point of four quants, then a word of each block: four signs of seven bits and a scale."""
    p = block(0)
    base = table(e, "iq3_xxs", _packed(grid("IQ3_XXS")), 32)
    words = e.load(V8I, p, 66)
    negative = _negative(e, _groups(e, _even(e, _apart(e, words))), by_block=False)
    d = _half_plus(e, _half(e, p, 0), e.b.lshr(words, 28), 0.5)
    points = _bytes(e, p, 2)
    return _signed(e, lambda q, h: _looked_up(e, base, points, _pieces(e, q, h, False), 4, False), negative, [d], 62)


def _iq3_s(e: Generic, block: Blocks) -> Superblock:
    """Points of eight bits and a ninth one apart; signs of their own; a nibble of scale for each block."""
    p = block(0)
    base = table(e, "iq3_s", _packed(grid("IQ3_S")), 32)
    index = _numbers(e, "IQ3_S", block)
    packed = e.splat(e.load(I32, p, 106))
    sc = e.b.and_(e.b.lshr(packed, [4 * j for j in range(8)]), 15)
    return _signed(
        e,
        lambda q, h: _looked_up(e, base, index, _pieces(e, q, h, False), 4, True),
        _negative(e, _loaded_groups(e, p, 74), by_block=False),
        [_odd(e, _half(e, p, 0), sc)],
        15,
    )


# --- one bit: points of -1, 0 and 1, moved by an eighth; quants are eight times as large and their scales smaller --------
_ONE_BIT_OFFSET = 16


def _moved(e: Generic, index: Index, moves: Callable[[int], Value], scales: Sequence[Value], by_block: bool) -> Superblock:
    """`moves(g)`: 1 or -1 for each eight quants of blocks 4 g to 4 g + 3, in each 128 bits."""
    base = table(e, "iq1", _packed(grid("IQ1_S"), plus=_ONE_BIT_OFFSET, times=8), 64)

    def quants(q: int, h: int) -> Value:
        pieces = _pieces(e, q, h, by_block)
        spread = e.pick(moves(pieces[0][0] // 4), _within(4 * (j % 4) + 2 * half + i // 8 for j, half in pieces for i in range(16)))
        return e.b.add(_looked_up(e, base, index, pieces, 8, True), spread)

    eighth = e.constant(V8F, 0.125)
    return Superblock(quants, [e.b.fmul(each, eighth) for each in scales], most=25, offset=_ONE_BIT_OFFSET)


def _iq1_s(e: Generic, block: Blocks) -> Superblock:
    """Points of eight bits, and three more of each of four in a word of the block, with its scale and the sign of its move."""
    p = block(0)
    words = e.load(V8H, p, 34)
    wide = e.b.zext(words, V8I)
    sc = e.b.and_(e.b.lshr(wide, 12), 7)
    top = e.b.or_(e.b.ashr(words, 15), 1)  # 1 or -1
    moves = e.pick(e.cast(top, V16B), [2 * (i // 4) for i in range(32)])
    return _moved(e, _numbers(e, "IQ1_S", block), _groups(e, moves), [_odd(e, _half(e, p, 0), sc)], by_block=False)


def _iq1_m(e: Generic, block: Blocks) -> Superblock:
    """Points of eight bits, and a nibble each: three more bits and the sign of its move; scales of half blocks in three bits of
    four words, whose top bits are d.
    """
    p = block(0)
    spread = e.pick(e.load(V16B, p, 32), [i // 2 for i in range(32)])
    top = e.constant(V32B, [8, -128] * 16)
    moves = e.b.or_(e.b.sext(e.b.icmp_signed("==", e.b.and_(spread, top), top), V32B), 1)
    words = e.load(I64, p, 48)
    quarters = [e.b.and_(e.b.lshr(words, 12 + 12 * i), 15 << 4 * i) for i in range(4)]
    bits = e.b.or_(e.b.or_(quarters[0], quarters[1]), e.b.or_(quarters[2], quarters[3]))
    d = e.from_f16(e.splat(e.b.trunc(bits, I16)))
    wide = e.b.zext(e.pick(e.load(vector(I16, 4), p, 48), [j // 2 for j in range(8)]), V8I)
    shifts = [[3 * (2 * j % 4 + half) for j in range(8)] for half in (0, 1)]
    sc = [e.b.and_(e.b.lshr(wide, each), 7) for each in shifts]
    return _moved(e, _numbers(e, "IQ1_M", block), _groups(e, moves), [_odd(e, d, each) for each in sc], by_block=True)


# --- numbers of points, or where they are in the table, from several places of a superblock ------------------------------------
def _high_bits(e: Generic, p: Value, low: int, high: Callable[[int], Value], step: int, bits: int, per: int) -> list[Value]:
    """8 * (byte | bits << 8) of 32 points: bytes at `low`; `high(i)`: what has the others of point i, each `step` further left."""
    offsets = []
    for part in (0, 16):
        bytes_ = e.b.shl(e.b.zext(e.load(V16B, p, low + part), V16H), 3)
        moved = e.b.mul(high(part), [1 << 11 - step * (i % per) for i in range(16)])
        offsets.append(e.b.or_(bytes_, e.b.and_(moved, ((1 << bits) - 1) << 11)))
    return offsets


def _iq2_xs_points(e: Generic, p: Value) -> list[Value]:
    return [e.b.and_(e.load(V32H, p, 2), 511)]


def _iq2_s_points(e: Generic, p: Value) -> list[Value]:
    high = e.load(vector(I8, 8), p, 66)
    return _high_bits(e, p, 2, lambda part: e.b.zext(e.pick(high, [part // 4 + i // 4 for i in range(16)]), V16H), 2, 2, 4)


def _iq3_s_points(e: Generic, p: Value) -> list[Value]:
    """4 * (byte | bit << 8)."""
    offsets = []
    for part in range(4):
        low = e.b.shl(e.b.zext(e.load(V16B, p, 2 + 16 * part), V16H), 2)
        bits = e.splat(e.load(I16, p, 66 + 2 * part), 16)
        bit = e.constant(V16H, [(1 << i) - (1 << 16 if i == 15 else 0) for i in range(16)])
        there = e.b.icmp_unsigned("==", e.b.and_(bits, bit), bit)
        offsets.append(e.b.select(there, e.b.or_(low, 4 << 8), low))
    return offsets


def _iq1_s_points(e: Generic, p: Value) -> list[Value]:
    words = e.load(V8H, p, 34)
    return _high_bits(e, p, 2, lambda part: e.pick(words, [part // 4 + i // 4 for i in range(16)]), 3, 3, 4)


def _iq1_m_points(e: Generic, p: Value) -> list[Value]:
    nibbles = e.load(V16B, p, 32)
    return _high_bits(e, p, 0, lambda part: e.b.zext(e.pick(nibbles, [part // 2 + i // 2 for i in range(16)]), V16H), 4, 3, 2)


POINTS: dict[str, Callable[[Generic, Value], list[Value]]] = {
    "IQ2_XS": _iq2_xs_points,
    "IQ2_S": _iq2_s_points,
    "IQ3_S": _iq3_s_points,
    "IQ1_S": _iq1_s_points,
    "IQ1_M": _iq1_m_points,
}
POINTS_BYTES = 128  # of the most of them
UNPACK: dict[str, Callable[[Generic, Blocks], Superblock]] = {
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
}
