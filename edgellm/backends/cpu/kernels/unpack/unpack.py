"""Unpackers of the block types: a superblock of 256 weights as quants, scales and mins, written as IR. One function per type.

Layouts: ggml-common.h of llama.cpp. A value is scale * (quant - offset) - minimum, in f32 and in this order, as the codecs have it.
Quants come by halves of blocks, because that is how nibbles lie: the first (or second) 16 quants of as many blocks as fill a
vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, V16B, V32B, Blocks, Generic

Quants = Callable[[int, int], Value]
Turned = Callable[[], list[Value]]
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # E2M1, doubled
V8B, V4I = vector(I8, 8), vector(I32, 4)
BLOCK_OF = (0, 2, 4, 6, 1, 3, 5, 7)  # lane -> its block, where quants are turned: what turning within 128 bits gives


@dataclass(frozen=True, slots=True)
class Superblock:
    """256 weights. `quants(q, h)`, i8 lanes: half h (16 quants) of each block of the q-th few, as many as the ISA level has
    `together`; or (`Traits.by_block`) the first or second half of these blocks, each of them complete.

    Scales and mins are f32x8 over the eight blocks: one vector, or two where each half block has its own. Quants are unsigned
    up to `most`, or signed; `offset` is a power of two. A block's quants may be multiples by a power of two, and its scale smaller.
    `places`: of rows whose blocks lie apart, quants of block j are multiples by 2^places[j], which their scales do not know of.
    With a `factor` (f32x8) scales are integers, i32x8 or f32x8, and it multiplies their sum. `turned()`, where it takes less
    than to turn `quants`: all quants as block_lanes.py wants them, eight vectors of which each has four neighbours of every block.
    """

    quants: Quants
    scales: Sequence[Value]
    most: int
    offset: int = 0
    mins: Sequence[Value] = ()
    signed: bool = False
    factor: Sequence[Value] = ()
    turned: Turned | None = field(default=None, kw_only=True)
    places: Sequence[int] = field(default=(), kw_only=True)


# --- parts ------------------------------------------------------------------------------------------------------------
def _shifted(e: Generic, quants: Value, shifts: Sequence[int], mask: int) -> Value:
    """(quants >> shift) & mask of each byte, a shift for every 16 bytes."""
    return e.fields(quants, shifts, mask)


def _in_place(e: Generic, quants: Value, shifts: Sequence[int], mask: int) -> Value:
    """`_shifted`, but the quants stay where they are, as multiples by 2^shift, where the ISA level takes such large ones: shifts
    are a sixth of the work on a row. `_of_places` is what their scales have to be multiplied with.
    """
    if not e.level.wide_quants:
        return _shifted(e, quants, shifts, mask)
    masks = [(mask << shift) - (mask << shift >> 7 << 8) for shift in shifts for _ in range(quants.type.count // len(shifts))]
    return e.b.and_(quants, masks)


def _near_place(e: Generic, quants: Value, shifts: Sequence[int], mask: int) -> Value:
    """`_shifted`, but of blocks that lie apart every other quant of two bits stays a multiple by four: see `_near_places`."""
    if not _near_places(e):
        return _shifted(e, quants, shifts, mask)
    shift = shifts[0]
    return _shifted(e, quants, [shift // 4 * 4] * len(shifts), mask << shift % 4)


def _near_places(e: Generic) -> Sequence[int]:
    """`Superblock.places` of such quants: half the shifts are worth less than a shift of the sums."""
    return [0, 2] * 4 if e.apart and not e.level.wide_quants else ()


def _of_places(e: Generic, values: Value, shifts: Sequence[int]) -> Value:
    return e.b.fmul(values, [2.0**-shift for shift in shifts]) if e.level.wide_quants else values


def _few(e: Generic, q: int) -> Sequence[int]:
    """The blocks of the q-th few."""
    if e.apart:
        return q, q + 4
    return range(q * e.level.together, (q + 1) * e.level.together)


def _halves(e: Generic, q: int, h: int) -> list[tuple[int, int]]:
    """The half blocks (block, half) of vector h of the q-th few, by full blocks where these do not lie apart."""
    if e.apart:
        return [(j, h) for j in _few(e, q)]
    first = (2 * q + h) * e.level.together
    return [divmod(first + i, 2) for i in range(e.level.together)]


def _nibbles(e: Generic, block: Blocks, offset: int) -> Quants:
    """16 bytes of each block: low nibbles are its first half, high nibbles its second."""

    @cache
    def both(q: int) -> Value:
        return e.each_sixteen(block, _few(e, q), offset)

    return lambda q, h: e.field(both(q), 4 * h, 15)


def _turned_nibbles(e: Generic, block: Blocks, offset: int) -> Turned:
    """`_nibbles` turned: four quants at a time of every block."""

    def turned() -> list[Value]:
        both = e.turned([e.each_sixteen(block, _few(e, q), offset) for q in range(4)])
        return [e.field(each, shift, 15) for shift in (0, 4) for each in both]

    return turned


def _turned_fifth_bits(e: Generic, block: Blocks, offset: int, nibbles: Turned) -> Turned:
    """`_fifth_bits` of turned quants."""

    def turned() -> list[Value]:
        words = e.cast(e.pack([e.load(I32, block(j), offset) for j in BLOCK_OF]), V32B)
        results = []
        for g, low in enumerate(nibbles()):
            octets = e.pick(words, [i // 4 * 4 + g // 2 for i in range(32)])
            bits = e.constant(V32B, [1 << i + 4 * (g % 2) if i + 4 * (g % 2) < 7 else -128 for i in (0, 1, 2, 3)] * 8)
            there = e.b.sext(e.b.icmp_unsigned("==", e.b.and_(octets, bits), bits), V32B)
            results.append(e.b.or_(low, e.b.and_(there, 16)))
        return results

    return turned


def _fifth_bits(e: Generic, block: Blocks, offset: int, quants: Quants) -> Quants:
    """`quants` with 16 added where a block's 32 bits have a one."""
    words = cache(lambda q: e.each_four(block, _few(e, q), offset))

    def with_bits(q: int, h: int) -> Value:
        low, places = quants(q, h), range(16 * e.level.together)
        octets = e.pick(words(q), [i // 16 * 16 + 2 * h + i % 16 // 8 for i in places])
        bit = e.b.and_(octets, [(1 << i % 8) - (256 if i % 8 == 7 else 0) for i in places])
        there = e.b.icmp_unsigned("!=", bit, 0)
        return e.b.select(there, e.b.add(low, 16), low)

    return with_bits


def _half(e: Generic, address: Value, offset: int) -> Value:
    """One f16, in all eight lanes, as f32."""
    return e.from_f16(e.splat(e.load(I16, address, offset)))


def _two_halves(e: Generic, address: Value, offset: int) -> list[Value]:
    """Two f16 side by side, each in all eight lanes, as f32: converted together, and spread within 128 bits."""
    both = e.from_f16(e.cast(e.splat(e.load(I32, address, offset), 4), vector(I16, 8)))
    return [e.pick(both, lanes) for lanes in ([0, 0, 2, 2, 4, 4, 6, 6], [1, 1, 3, 3, 5, 5, 7, 7])]


def _eights(e: Generic, sixteen: Value) -> list[Value]:
    return [e.pick(sixteen, range(8)), e.pick(sixteen, range(8, 16))]


def _by_halves(e: Generic, sixteen: Value) -> list[Value]:
    """f32x8 of the first halves' scales and of the second halves', from i8x16 in their natural order."""
    pairs = e.b.sext(e.cast(sixteen, vector(I16, 8)), V8I)
    first = e.b.ashr(e.b.shl(pairs, 24), 24)
    return [e.b.sitofp(each, V8F) for each in (first, e.b.ashr(pairs, 8))]


def _times(e: Generic, d: Value, scales: Sequence[Value]) -> list[Value]:
    return [e.b.fmul(d, each) for each in scales]


def offset_table(values: Sequence[int], offset: int) -> list[int]:
    """Values + offset, as signed bytes."""
    return [(value + offset + 128) % 256 - 128 for value in values]


def _table(e: Generic, nibbles: Quants, scales: Sequence[Value], turned: Turned | None = None) -> Superblock:
    """Quants of the IQ4 table, at these indices; with an offset where the ISA level multiplies unsigned quants faster."""
    offset = 128 if e.level.wide_quants else 0
    table = offset_table(IQ4_VALUES, offset)
    return Superblock(
        lambda q, h: e.lookup(table, nibbles(q, h)),
        scales,
        most=255 if offset else 127,
        offset=offset,
        signed=not offset,
        turned=turned and _looked_up(e, table, turned),
    )


def _looked_up(e: Generic, table: Sequence[int], turned: Turned) -> Turned:
    return lambda: [e.lookup(table, each) for each in turned()]


# --- types of 32 ------------------------------------------------------------------------------------------------------
def _scale(e: Generic, block: Blocks) -> Value:
    return e.from_f16(e.each_word(block, 0, 1))


def _scale_and_minimum(e: Generic, block: Blocks) -> tuple[Value, Value]:
    """d and -m: what is added in these types is the minimum."""
    d, m = _eights(e, e.from_f16(e.each_word(block, 0, 2)))
    return d, e.b.fneg(m)


def _q4_0(e: Generic, block: Blocks) -> Superblock:
    return Superblock(_nibbles(e, block, 2), [_scale(e, block)], most=15, offset=8, turned=_turned_nibbles(e, block, 2))


def _q4_1(e: Generic, block: Blocks) -> Superblock:
    d, m = _scale_and_minimum(e, block)
    return Superblock(_nibbles(e, block, 4), [d], most=15, mins=[m], turned=_turned_nibbles(e, block, 4))


def _q5_0(e: Generic, block: Blocks) -> Superblock:
    return Superblock(
        _fifth_bits(e, block, 2, _nibbles(e, block, 6)),
        [_scale(e, block)],
        most=31,
        offset=16,
        turned=_turned_fifth_bits(e, block, 2, _turned_nibbles(e, block, 6)),
    )


def _q5_1(e: Generic, block: Blocks) -> Superblock:
    d, m = _scale_and_minimum(e, block)
    return Superblock(
        _fifth_bits(e, block, 4, _nibbles(e, block, 8)),
        [d],
        most=31,
        mins=[m],
        turned=_turned_fifth_bits(e, block, 4, _turned_nibbles(e, block, 8)),
    )


def _q8_0(e: Generic, block: Blocks) -> Superblock:
    offset = 128 if e.level.wide_quants else 0
    pairs = cache(lambda j: e.join(e.load(V32B, block(j), 2), e.load(V32B, block(j + 1), 2)))

    def quants(q: int, h: int) -> Value:
        few = _few(e, q)
        if len(few) == 1:
            return e.load(V16B, block(few[0]), 2 + 16 * h)
        if e.apart:
            signed = e.each_sixteen(block, few, 2 + 16 * h)
        else:
            lanes = [*range(16 * h, 16 * h + 16), *range(32 + 16 * h, 48 + 16 * h)]
            signed = e.join_all([e.pick(pairs(j), lanes) for j in few[::2]])
        return e.b.xor(signed, -128) if offset else signed

    return Superblock(quants, [_scale(e, block)], most=255 if offset else 128, offset=offset, signed=not offset)


def _iq4_nl(e: Generic, block: Blocks) -> Superblock:
    return _table(e, _nibbles(e, block, 2), [_scale(e, block)], _turned_nibbles(e, block, 2))


def mxfp4_scale(e: Generic, exponent: Value) -> Value:
    """2^(exponent - 128), half of E8M0's, because the table is doubled; of i32 lanes."""
    kind = exponent.type
    normal = e.b.sub(e.b.shl(exponent, 23), 1 << 23)
    one, few = e.constant(kind, 1 << 21), e.b.shl(exponent, 21)
    tiny = e.b.add(e.b.select(e.b.icmp_signed("<", few, one), few, one), one)  # 2^-128, or else 2^-127
    return e.cast(e.b.select(e.b.icmp_signed(">", normal, tiny), normal, tiny), vector(F32, kind.count))


def _mxfp4(e: Generic, block: Blocks) -> Superblock:
    table, nibbles = offset_table(FP4_VALUES, 16), _nibbles(e, block, 1)
    return Superblock(
        lambda q, h: e.lookup(table, nibbles(q, h)),
        [mxfp4_scale(e, e.b.zext(e.first_bytes(block), V8I))],
        most=28,
        offset=16,
        turned=_looked_up(e, table, _turned_nibbles(e, block, 1)),
    )


# --- types of 256 -----------------------------------------------------------------------------------------------------
def _q4_or_q5_k(e: Generic, p: Value, quants: Quants, most: int, places: Sequence[int] = (0, 0)) -> Superblock:
    """Eight scales and eight mins of six bits, in 12 bytes: those of blocks 0 to 3 in the low bits of the first eight bytes, of
    blocks 4 to 7 in the nibbles of the last four and the top bits of the first eight. `places`: of quants of even and odd blocks.
    """

    def bits(word: Value, shift: int, mask: int) -> Value:
        return e.b.and_(e.b.lshr(word, shift), mask)

    def eight(low: Value, high: Value) -> Value:
        """f32x8 of the bytes of two words. Integer units combine them: vector units are the bottleneck."""
        both = e.b.or_(e.b.zext(low, I64), e.b.shl(e.b.zext(high, I64), 32))
        return e.b.sitofp(e.b.zext(e.cast(both, V8B), V8I), V8F)

    first, second, last = (e.load(I32, p, 4 * i) for i in (1, 2, 3))
    scales = eight(bits(first, 0, 0x3F3F3F3F), e.b.or_(bits(last, 0, 0x0F0F0F0F), bits(first, 2, 0x30303030)))
    mins = eight(bits(second, 0, 0x3F3F3F3F), e.b.or_(bits(last, 4, 0x0F0F0F0F), bits(second, 2, 0x30303030)))
    d, least = _two_halves(e, p, 0)
    return Superblock(quants, [e.b.fmul(_of_places(e, d, [*places] * 4), scales)], most, mins=[e.b.fmul(least, mins)])


def _pair_nibbles(e: Generic, p: Value, offset: int, taken: Callable[..., Value]) -> Quants:
    """32 bytes for two full blocks: low nibbles are the first block."""

    def quants(q: int, h: int) -> Value:
        few = _few(e, q)
        first = few[0] // 2 * 2
        pieces = [j // 2 * 2 - first + h for j in few]
        return taken(e, e.sixteens(p, offset + first * 16, pieces), [j % 2 * 4 for j in few], 15)

    return quants


def _bit_of_each(e: Generic, p: Value, offset: int) -> Callable[[Sequence[tuple[int, int]], int, int], Value]:
    """A function that moves a bit of each quant of some half blocks (block, half) to a place: 32 bytes have a bit per block."""

    @cache
    def moved(half: int) -> Value:  # of blocks that lie apart the last four's bits go to the places of the first
        both = e.cast(e.sixteens(p, offset, [half, half]), V8I)
        return e.cast(e.b.lshr(both, [0] * 4 + [4] * 4), V32B)

    def taken(halves: Sequence[tuple[int, int]], place: int, mask: int) -> Value:
        if e.apart:
            block, half = halves[0]
            return e.fields(moved(half), [block - place] * 2, mask)
        both = e.sixteens(p, offset, [half for _, half in halves])
        return e.fields(both, [j - place for j, _ in halves], mask)

    return taken


def _q4_k(e: Generic, block: Blocks) -> Superblock:
    most = 240 if e.level.wide_quants else 15
    return _q4_or_q5_k(e, block(0), _pair_nibbles(e, block(0), 16, _in_place), most, [0, 4])


def _q5_k(e: Generic, block: Blocks) -> Superblock:
    p = block(0)
    nibbles, fifth = _pair_nibbles(e, p, 48, _shifted), _bit_of_each(e, p, 16)

    def quants(q: int, h: int) -> Value:
        return e.b.or_(nibbles(q, h), fifth([(j, h) for j in _few(e, q)], 4, 16))

    return _q4_or_q5_k(e, p, quants, most=31)


def _q6_k(e: Generic, block: Blocks) -> Superblock:
    p = block(0)

    def quants(q: int, h: int) -> Value:
        halves = _halves(e, q, h)
        half = halves[0][0] // 4
        low = e.sixteens(p, half * 64, [(j // 4 - half) * 4 + j % 2 * 2 + side for j, side in halves])
        high = e.sixteens(p, 128 + half * 32, [(j // 4 - half) * 2 + side for j, side in halves])
        return e.b.or_(
            e.fields(low, [j % 4 // 2 * 4 for j, _ in halves], 15), e.fields(high, [j % 4 * 2 - 4 for j, _ in halves], 48)
        )

    scales = _times(e, _half(e, p, 208), _by_halves(e, e.load(V16B, p, 192)))
    return Superblock(quants, scales, most=63, offset=32)


def _twos(e: Generic, p: Value, offset: int, taken: Callable[..., Value]) -> Quants:
    """Two bits a quant: 32 bytes for every four blocks."""

    def quants(q: int, h: int) -> Value:
        halves = _halves(e, q, h)
        half = halves[0][0] // 4
        both = e.sixteens(p, offset + half * 32, [(j // 4 - half) * 2 + side for j, side in halves])
        return taken(e, both, [j % 4 * 2 for j, _ in halves], 3)

    return quants


def _q2_k(e: Generic, block: Blocks) -> Superblock:
    p = block(0)
    pairs = e.b.zext(e.load(vector(I16, 8), p, 0), V8I)

    def numbers(shift: int) -> list[Value]:
        fields = [e.b.and_(e.b.lshr(pairs, shift + 8 * half), 15) for half in (0, 1)]
        return [e.b.sitofp(each, V8F) for each in fields]

    d, least = _two_halves(e, p, 80)
    scales, mins = numbers(0), _times(e, least, numbers(4))
    if e.level.wide_quants:
        factor = [_of_places(e, d, [0, 2, 4, 6] * 2)]
        return Superblock(_twos(e, p, 16, _in_place), scales, most=192, mins=mins, factor=factor)
    places = _near_places(e)
    most = 12 if places else 3
    return Superblock(_twos(e, p, 16, _near_place), _times(e, d, scales), most, mins=mins, places=places)


def _q3_k(e: Generic, block: Blocks) -> Superblock:
    p = block(0)
    twos, third = _twos(e, p, 32, _shifted), _bit_of_each(e, p, 0)

    def quants(q: int, h: int) -> Value:
        return e.b.or_(twos(q, h), third(_halves(e, q, h), 2, 4))

    low = e.load(V8B, p, 96)
    fours = e.join(e.field(low, 0, 15), e.field(low, 4, 15))
    high = e.cast(e.b.lshr(e.splat(e.load(I32, p, 104), 4), [0, 2, 4, 6]), V16B)
    sixes = e.b.sub(e.b.or_(fours, e.field(e.field(high, 0, 3), -4, 48)), 32)
    scales, d = _by_halves(e, sixes), _half(e, p, 108)
    if e.level.wide_quants:
        return Superblock(quants, scales, most=7, offset=4, factor=[d])
    return Superblock(quants, _times(e, d, scales), most=7, offset=4)


def _iq4_xs(e: Generic, block: Blocks) -> Superblock:
    p = block(0)

    def field(value: Value, width: int) -> Value:
        shifted = e.b.lshr(e.splat(value), [width * j for j in range(8)])
        return e.b.and_(shifted, (1 << width) - 1)

    high = field(e.b.zext(e.load(I16, p, 2), I32), 2)
    scales = e.b.or_(field(e.load(I32, p, 4), 4), e.b.shl(high, 4))
    d = e.b.fmul(_half(e, p, 0), e.b.sitofp(e.b.sub(scales, 32), vector(F32, 8)))
    both = cache(lambda q: e.sixteens(p, 8 + 16 * _few(e, q)[0], [j - _few(e, q)[0] for j in _few(e, q)]))

    return _table(e, lambda q, h: e.field(both(q), 4 * h, 15), [d])


UNPACK: dict[str, Callable[[Generic, Blocks], Superblock]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
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
