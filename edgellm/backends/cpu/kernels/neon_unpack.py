"""The types of 256 that AArch64 opens up in fewer instructions than unpack.py: bit inserts for codes, scalars for packed scales."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from edgellm.backends.cpu.kernels.unpack import UNPACK, Codes, Unit
from edgellm.backends.cpu.simd.base import F16, F32, I16, I32, I64
from edgellm.backends.cpu.simd.generic import V8I, V16B, Blocks, Generic
from edgellm.backends.cpu.simd.neon import V8B, V8H, Neon

Value = Any                                      # ir.Value: llvmlite has no static types
ANCHOR = {"Q6_K": 192}                           # where a pointer to a unit best points: at what is loaded without an offset


def open_blocks(e: Generic, name: str, blocks: Blocks) -> Unit:
    """The unit of a type: opened here on AArch64 where we know better, else as everywhere."""
    own = _OWN.get(name) if isinstance(e, Neon) else None
    return own(e, blocks) if own else UNPACK[name](e, blocks)


def _half(e: Neon, address: Value, offset: int) -> Value:
    """One f16 as f32, in all lanes of eight."""
    return e.splat(e.b.fpext(e.cast(e.load(I16, address, offset), F16), F32))


def _q4_or_q5_k(e: Neon, p: Value, codes: Codes, most: int) -> Unit:
    """Scales and minima of six bits, in 12 bytes: see unpack.py. Two words of eight bytes have first the scales, then the minima
    of four blocks each.
    """
    def bits(value: Value, shift: int, mask: int) -> Value:
        return e.b.and_(e.b.lshr(value, I64(shift)) if shift else value, I64(mask))

    eight, four = e.load(I64, p, 4), e.b.zext(e.load(I32, p, 12), I64)
    low = bits(eight, 0, 0x3F3F3F3F3F3F3F3F)
    nibbles = e.b.or_(bits(four, 0, 0x0F0F0F0F), e.b.shl(bits(four, 4, 0x0F0F0F0F), I64(32)))
    high = e.b.or_(nibbles, bits(eight, 2, 0x3030303030303030))
    both = [e.widen(e.cast(word, V8B), signed=False) for word in (low, high)]
    scales, minima = (e.shuffle(*both, [first + i for first in (4 * part, 8 + 4 * part) for i in range(4)]) for part in (0, 1))
    d, least = (_half(e, p, 2 * i) for i in (0, 1))
    return Unit(codes, [e.b.fmul(d, scales)], most, minima=[e.b.fmul(least, minima)])


def _pair_nibbles(e: Neon, p: Value, offset: int) -> Codes:
    both = cache(lambda pair, h: e.load(V16B, p, offset + 32 * pair + 16 * h))
    return lambda j, h: e.field(both(j // 2, h), j % 2 * 4, 15)


def _q4_k(e: Neon, block: Blocks) -> Unit:
    return _q4_or_q5_k(e, block(0), _pair_nibbles(e, block(0), 16), most=15)


def _q5_k(e: Neon, block: Blocks) -> Unit:
    p = block(0)
    nibbles, high = _pair_nibbles(e, p, 48), cache(lambda group, h: e.load(V16B, p, 16 + 16 * h))      # again: registers are few
    return _q4_or_q5_k(e, p, lambda j, h: e.b.or_(nibbles(j, h), e.field(high(j // 4, h), j - 4, 16)), most=31)


def _q6_k(e: Neon, block: Blocks) -> Unit:
    """Of every four blocks the first two have the low nibbles of 64 bytes, the others the high ones; each byte of 32 more has two
    bits for each of them.
    """
    p = block(0)

    raw = cache(lambda group: [e.load(V16B, p, 16 * i) for i in (*range(4 * group, 4 * group + 4), 8 + 2 * group, 9 + 2 * group)])

    @cache
    def four(group: int, h: int) -> list[Value]:
        low, after, twos = raw(group)[h::2]
        first, second = e.field(twos, 0, 0x33), e.field(twos, 2, 0x3F)       # above, those of the third and fourth block
        return [e.insert_left(low, first, 4), e.insert_left(after, e.field(second, 0, 0x33), 4),
                e.insert_right(first, low, 4), e.insert_right(second, after, 4)]

    d, sixteen = _half(e, p, 208), e.load(V16B, p, 192)
    scales = [e.b.sext(e.plain(e.b.sext(e.pick(sixteen, range(h, 16, 2)), V8H)), V8I) for h in (0, 1)]
    return Unit(lambda j, h: four(j // 4, h)[j % 4], scales, most=63, offset=32, factor=[d])


_OWN: dict[str, Callable[[Neon, Blocks], Unit]] = {"Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}
