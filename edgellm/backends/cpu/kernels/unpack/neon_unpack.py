"""The superblock types that AArch64 unpacks in fewer instructions than unpack.py: bit inserts for quants, scalars for scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from edgellm.backends.cpu.kernels.unpack.unpack import UNPACK as SHARED
from edgellm.backends.cpu.kernels.unpack.unpack import Quants, Superblock
from edgellm.backends.cpu.simd.base import F16, F32, I8, I16, I32, I64, Value
from edgellm.backends.cpu.simd.generic import V8I, V16B, Blocks
from edgellm.backends.cpu.simd.neon import V4F, V4I, V8B, V8H, Neon

ANCHOR = {"Q6_K": 192}  # where a pointer to a superblock best points: at what is loaded without an offset


@dataclass(frozen=True, slots=True)
class GroupedSuperblock(Superblock):
    """A superblock that also gives the numbers of four blocks at a time, where they are needed: `four(group)` is their scales, mins
    and factor. Those of all blocks, made at once, would take the registers of sums.
    """

    four: Callable[[int], tuple[Sequence[Value], Sequence[Value], Sequence[Value]]] = lambda group: ((), (), ())


def numbers_of_four(e: Neon, superblock: Superblock, group: int) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
    """Scales, mins and factor of blocks 4 group to 4 group + 3."""
    if isinstance(superblock, GroupedSuperblock):
        return superblock.four(group)
    scales, mins, factor = (
        [e.pick(each, range(4 * group, 4 * group + 4)) for each in vectors]
        for vectors in (superblock.scales, superblock.mins, superblock.factor)
    )
    return scales, mins, factor


def _half(e: Neon, address: Value, offset: int) -> Value:
    """One f16 as f32, in all lanes of eight."""
    return e.splat(e.b.fpext(e.cast(e.load(I16, address, offset), F16), F32))


def _q4_or_q5_k(e: Neon, p: Value, quants: Quants, most: int) -> Superblock:
    """Scales and mins of six bits, in 12 bytes: see unpack.py. Two words of eight bytes have first the scales, then the mins
    of four blocks each.
    """

    def bits(value: Value, shift: int, mask: int) -> Value:
        return e.b.and_(e.b.lshr(value, shift) if shift else value, mask)

    eight, last = e.load(I64, p, 4), e.b.zext(e.load(I32, p, 12), I64)
    low = bits(eight, 0, 0x3F3F3F3F3F3F3F3F)
    nibbles = e.b.or_(bits(last, 0, 0x0F0F0F0F), e.b.shl(bits(last, 4, 0x0F0F0F0F), 32))
    high = e.b.or_(nibbles, bits(eight, 2, 0x3030303030303030))
    d, least = (_half(e, p, 2 * i) for i in (0, 1))

    def four(group: int) -> tuple[list[Value], list[Value], tuple[Value, ...]]:
        both = e.widen(e.cast((low, high)[group], V8B), signed=False)
        return [e.b.fmul(_first(e, d), e.pick(both, range(4)))], [e.b.fmul(_first(e, least), e.pick(both, range(4, 8)))], ()

    return _grouped(e, quants, most, four)


def _first(e: Neon, eight: Value) -> Value:
    return e.pick(eight, range(4))


def _grouped(e: Neon, quants: Quants, most: int, four: Callable[[int], Any], offset: int = 0, signed: bool = False) -> Superblock:
    """A superblock whose numbers are all given by `four`."""
    scales, mins, factor = ([e.join(a, b) for a, b in zip(*both, strict=True)] for both in zip(four(0), four(1), strict=True))
    return GroupedSuperblock(quants, scales, most, offset, mins, signed, factor, four)


def _pair_nibbles(e: Neon, p: Value, offset: int) -> Quants:
    both = cache(lambda pair, h: e.load(V16B, p, offset + 32 * pair + 16 * h))
    return lambda j, h: e.field(both(j // 2, h), j % 2 * 4, 15)


def _q4_k(e: Neon, block: Blocks) -> Superblock:
    return _q4_or_q5_k(e, block(0), _pair_nibbles(e, block(0), 16), most=15)


def _q5_k(e: Neon, block: Blocks) -> Superblock:
    p = block(0)
    nibbles, high = _pair_nibbles(e, p, 48), cache(lambda pair, h: e.load(V16B, p, 16 + 16 * h))  # again: registers are few
    return _q4_or_q5_k(e, p, lambda j, h: e.b.or_(nibbles(j, h), e.field(high(j // 2, h), j - 4, 16)), most=31)


def _q6_k(e: Neon, block: Blocks) -> Superblock:
    """Of every four blocks the first two have the low nibbles of 64 bytes, the others the high ones; each byte of 32 more has two
    bits for each of them.
    """
    p = block(0)

    raw = cache(lambda group: [e.load(V16B, p, 16 * i) for i in (*range(4 * group, 4 * group + 4), 8 + 2 * group, 9 + 2 * group)])

    @cache
    def four(group: int, h: int) -> list[Value]:
        low, after, twos = raw(group)[h::2]
        first, second = e.field(twos, 0, 0x33), e.field(twos, 2, 0x3F)  # above, those of the third and fourth block
        return [
            e.insert_left(low, first, 4),
            e.insert_left(after, e.field(second, 0, 0x33), 4),
            e.insert_right(first, low, 4),
            e.insert_right(second, after, 4),
        ]

    d, sixteen = _half(e, p, 208), e.load(V16B, p, 192)
    scales = [e.b.sext(e.plain(e.b.sext(e.pick(sixteen, range(h, 16, 2)), V8H)), V8I) for h in (0, 1)]
    return Superblock(lambda j, h: four(j // 4, h)[j % 4], scales, most=63, offset=32, factor=[d])


def _fifths(e: Neon, block: Blocks, offset: int) -> Quants:
    """All ones in each byte whose quant has its fifth bit, from the 32 bits at `offset`."""

    @cache
    def bits(j: int) -> Value:
        return e.cast(e.splat(e.load(I32, block(j), offset), 4), V16B)

    def ones(j: int, h: int) -> Value:
        octets = e.table_pick(bits(j), [2 * h + i // 8 for i in range(16)])
        bit = e.constant(V16B, [(1 << i % 8) - (256 if i % 8 == 7 else 0) for i in range(16)])
        return e.b.sext(e.b.icmp_unsigned("!=", e.b.and_(octets, bit), 0), V16B)

    return ones


def _nibbles(e: Neon, block: Blocks, offset: int) -> Quants:
    both = cache(lambda j: e.load(V16B, block(j), offset))
    return lambda j, h: e.field(both(j), 4 * h, 15)


def _halves_of_four(e: Neon, p: Value, group: int) -> Value:
    """i16x4: f16 of the first bytes of four blocks."""
    return e.from_f16(e.pack([e.load(I16, address) for address in (p(4 * group + i) for i in range(4))]))


def _q5_0(e: Neon, block: Blocks) -> Superblock:
    return _grouped(e, _five_bits(e, block, 2), 31, lambda group: ([_halves_of_four(e, block, group)], (), ()), offset=16)


def _q5_1(e: Neon, block: Blocks) -> Superblock:
    def four(group: int) -> tuple[list[Value], list[Value], tuple[Value, ...]]:
        least = _halves_of_four(e, lambda j: e.b.add(block(j), 2), group)
        return [_halves_of_four(e, block, group)], [e.b.fneg(least)], ()

    return _grouped(e, _five_bits(e, block, 4), 31, four)


def _five_bits(e: Neon, block: Blocks, first: int) -> Quants:
    """Bit 4 of the quants from 32 bits, which lie at `first` and have the nibbles behind them."""
    ones, nibbles = _fifths(e, block, first), _nibbles(e, block, first + 4)
    return lambda j, h: e.b.or_(nibbles(j, h), e.b.and_(ones(j, h), 16))


def _q2_k(e: Neon, block: Blocks) -> Superblock:
    """Bits 2 j and 2 j + 1 of 32 bytes are four blocks; of each half's byte the nibbles are its scale and its minimum."""
    p, twos = block(0), cache(lambda group, h: e.load(V16B, block(0), 16 + 32 * group + 16 * h))
    d, least = (_half(e, p, 80 + 2 * i) for i in (0, 1))

    def four(group: int) -> tuple[list[Value], list[Value], tuple[Value, ...]]:
        both = e.load(V8B, p, 8 * group)
        scales, mins = e.widen_all(e.field(both, 0, 15), signed=False), e.widen(e.field(both, 4, 15), signed=False)
        return (
            [e.pick(scales, range(h, 8, 2)) for h in (0, 1)],
            [e.b.fmul(_first(e, least), e.pick(mins, range(h, 8, 2))) for h in (0, 1)],
            (_first(e, d),),
        )

    return _grouped(e, lambda j, h: e.field(twos(j // 4, h), j % 4 * 2, 3), 3, four)


def _q3_k(e: Neon, block: Blocks) -> Superblock:
    """Scales of six bits, less 32: of each half, nibbles of eight bytes and two bits of one of four bytes."""
    p, twos = block(0), cache(lambda group, h: e.load(V16B, block(0), 32 + 32 * group + 16 * h))
    d, top = _half(e, p, 108), cache(lambda group, h: e.load(V16B, block(0), 16 * h))

    def four(group: int) -> tuple[list[Value], tuple[Value, ...], tuple[Value, ...]]:
        word = e.b.zext(e.load(I32, p, 104), I64)
        first, second = (e.b.and_(e.b.lshr(word, 4 * group + i), 0x03030303) for i in (0, 2))
        high = e.cast(e.b.shl(e.b.or_(first, e.b.shl(second, 32)), 4), V8B)
        six = e.b.or_(e.field(e.load(V8B, p, 96), 4 * group, 15), high)
        scales = e.widen_all(e.b.sub(six, 32), signed=True)
        return [e.pick(scales, range(h, 8, 2)) for h in (0, 1)], (), (_first(e, d),)

    def quants(j: int, h: int) -> Value:
        return e.b.or_(e.field(twos(j // 4, h), j % 4 * 2, 3), e.field(top(j // 4, h), j - 2, 4))

    return _grouped(e, quants, 7, four, offset=4)


def _mxfp4(e: Neon, block: Blocks) -> Superblock:
    """Scales: 2^(exponent - 128), see unpack.py."""
    shared = SHARED["MXFP4"](e, block)

    def four(group: int) -> tuple[list[Value], tuple[Value, ...], tuple[Value, ...]]:
        exponent = e.b.zext(e.pack([e.load(I8, block(4 * group + i)) for i in range(4)]), V4I)
        normal = e.b.shl(e.b.sub(exponent, 1), 23)
        tiny = e.b.shl(0x200000, exponent)
        return [e.cast(e.b.select(e.b.icmp_signed("<", exponent, 2), tiny, normal), V4F)], (), ()

    return _grouped(e, shared.quants, shared.most, four, shared.offset, shared.signed)


def _iq4_xs(e: Neon, block: Blocks) -> Superblock:
    """Scales of six bits, less 32: four from the nibbles of a block's half byte, two from 16 bits."""
    p = block(0)
    d, shared = _half(e, p, 0), SHARED["IQ4_XS"](e, block)

    def four(group: int) -> tuple[list[Value], tuple[Value, ...], tuple[Value, ...]]:
        def field(address: Value, offset: int, width: int) -> Value:
            wide = e.splat(e.b.zext(e.load(I16 if width == 4 else I8, address, offset), I32), 4)
            return e.b.and_(e.b.lshr(wide, [width * i for i in range(4)]), (1 << width) - 1)

        six = e.b.or_(field(p, 4 + 2 * group, 4), e.b.shl(field(p, 2 + group, 2), 4))
        return [e.b.fmul(_first(e, d), e.b.sitofp(e.b.sub(six, 32), V4F))], (), ()

    return _grouped(e, shared.quants, shared.most, four, shared.offset, shared.signed)


UNPACK: dict[str, Callable[[Neon, Blocks], Superblock]] = {
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "MXFP4": _mxfp4,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs,
}
