"""How each block type opens up: a unit of 256 weights as codes, scales and minima, written as IR. One function per type.

Layouts: ggml-common.h of llama.cpp. A value is scale * (code - offset) + minimum, in f32 and in this order, as the codecs have it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.backends.cpu.simd.base import F32, I1, I8, I16, I32, vector
from edgellm.backends.cpu.simd.generic import V8I, V32B, Generic

Value = Any                                      # ir.Value: llvmlite has no static types
Block = Callable[[int], Value]                   # address of block j of the unit; types of 256 have one block only
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)      # E2M1, doubled
V8B, V16B, V16H, V4I = vector(I8, 8), vector(I8, 16), vector(I16, 16), vector(I32, 4)


@dataclass(frozen=True, slots=True)
class Unit:
    """256 weights: `codes(j)` is i8x32, the block j of 32. Scales and minima are f32x8 over the eight blocks: one vector, or
    two where each half block of 16 has its own. Codes are unsigned up to `most`, or signed.
    """

    codes: Callable[[int], Value]
    scales: Sequence[Value]
    most: int
    offset: int = 0
    minima: Sequence[Value] = ()
    signed: bool = False


# --- parts ------------------------------------------------------------------------------------------------------------
def _low_bits(e: Generic, codes: Value, shift: int, mask: int) -> Value:
    """(codes >> shift) & mask of each byte; shift < 0: to the left."""
    if shift:
        wide = vector(I16, codes.type.count // 2)
        move = e.b.lshr if shift > 0 else e.b.shl
        codes = e.cast(move(e.cast(codes, wide), e.constant(wide, abs(shift))), codes.type)
    return e.b.and_(codes, e.constant(codes.type, mask))


def _nibbles(e: Generic, address: Value, offset: int) -> Value:
    """16 bytes to 32 codes: the low nibbles, then the high ones."""
    both = e.load(V16B, address, offset)
    shifted = e.b.lshr(e.cast(e.join(both, both), V8I), e.constant(V8I, [0] * 4 + [4] * 4))
    return e.b.and_(e.cast(shifted, V32B), e.constant(V32B, 15))


def _fifth_bits(e: Generic, address: Value, offset: int) -> Value:
    """32 bits to 32 codes of 0 or 16."""
    mask = e.cast(e.load(I32, address, offset), vector(I1, 32))
    return e.b.select(mask, e.constant(V32B, 16), e.constant(V32B, 0))


def _each(e: Generic, kind: Any, block: Block, offset: int) -> Value:
    """One scalar of every block of the unit, as a vector of eight."""
    return e.pack([e.load(kind, block(j), offset) for j in range(8)])


def _half(e: Generic, address: Value, offset: int) -> Value:
    """One f16, in all eight lanes, as f32."""
    return e.from_f16(e.splat(e.load(I16, address, offset)))


def _floats(e: Generic, small: Value, signed: bool = False) -> Value:
    """i8x8 to f32x8."""
    return e.b.sitofp((e.b.sext if signed else e.b.zext)(small, V8I), vector(F32, 8))


def _by_halves(e: Generic, d: Value, sixteen: Value, signed: bool = False) -> list[Value]:
    """Scales d * s of the first halves and of the second halves, from i8x16 in their natural order."""
    return [e.b.fmul(d, _floats(e, e.pick(sixteen, range(first, 16, 2)), signed)) for first in (0, 1)]


def _negative(e: Generic, x: Value) -> Value:
    return e.b.fneg(x)


# --- types of 32 ------------------------------------------------------------------------------------------------------
def _scale(e: Generic, block: Block) -> Value:
    return e.from_f16(_each(e, I16, block, 0))


def _scale_and_minimum(e: Generic, block: Block) -> tuple[Value, Value]:
    both = _each(e, I32, block, 0)
    d, m = e.b.trunc(both, vector(I16, 8)), e.b.trunc(e.b.lshr(both, e.constant(V8I, 16)), vector(I16, 8))
    return e.from_f16(d), e.from_f16(m)


def _q4_0(e: Generic, block: Block) -> Unit:
    return Unit(lambda j: _nibbles(e, block(j), 2), [_scale(e, block)], most=15, offset=8)


def _q4_1(e: Generic, block: Block) -> Unit:
    d, m = _scale_and_minimum(e, block)
    return Unit(lambda j: _nibbles(e, block(j), 4), [d], most=15, minima=[m])


def _q5_0(e: Generic, block: Block) -> Unit:
    def codes(j: int) -> Value:
        return e.b.or_(_nibbles(e, block(j), 6), _fifth_bits(e, block(j), 2))

    return Unit(codes, [_scale(e, block)], most=31, offset=16)


def _q5_1(e: Generic, block: Block) -> Unit:
    def codes(j: int) -> Value:
        return e.b.or_(_nibbles(e, block(j), 8), _fifth_bits(e, block(j), 4))

    d, m = _scale_and_minimum(e, block)
    return Unit(codes, [d], most=31, minima=[m])


def _q8_0(e: Generic, block: Block) -> Unit:
    return Unit(lambda j: e.load(V32B, block(j), 2), [_scale(e, block)], most=128, signed=True)


def _iq4_nl(e: Generic, block: Block) -> Unit:
    return Unit(lambda j: e.lookup(IQ4_VALUES, _nibbles(e, block(j), 2)), [_scale(e, block)], most=127, signed=True)


def _mxfp4(e: Generic, block: Block) -> Unit:
    """The scale is 2^(exponent - 128), half of E8M0's, because the table is doubled."""
    exponent = e.b.zext(_each(e, I8, block, 0), V8I)
    normal = e.b.shl(e.b.sub(exponent, e.constant(V8I, 1)), e.constant(V8I, 23))
    zero = e.b.icmp_signed("==", exponent, e.constant(V8I, 0))
    tiny = e.b.select(zero, e.constant(V8I, 0x200000), e.constant(V8I, 0x400000))
    bits = e.b.select(e.b.icmp_signed("<", exponent, e.constant(V8I, 2)), tiny, normal)
    table = [value + 12 for value in FP4_VALUES]
    return Unit(lambda j: e.lookup(table, _nibbles(e, block(j), 1)), [e.cast(bits, vector(F32, 8))], most=24, offset=12)


# --- types of 256 -----------------------------------------------------------------------------------------------------
def _six_bit_scales(e: Generic, p: Value, offset: int) -> tuple[Value, Value]:
    """The eight scales and eight minima of Q4_K and Q5_K, from 12 bytes."""
    def masked(value: Value, shift: int, mask: int) -> Value:
        return e.b.and_(e.b.lshr(value, I32(shift)), I32(mask))

    s, m, high = (e.load(I32, p, offset + 4 * i) for i in range(3))
    scales = [masked(s, 0, 0x3F3F3F3F), e.b.or_(masked(high, 0, 0x0F0F0F0F), masked(s, 2, 0x30303030))]
    minima = [masked(m, 0, 0x3F3F3F3F), e.b.or_(masked(high, 4, 0x0F0F0F0F), masked(m, 2, 0x30303030))]
    return _floats(e, e.cast(e.pack(scales), V8B)), _floats(e, e.cast(e.pack(minima), V8B))


def _q4_or_q5_k(e: Generic, p: Value, codes: Callable[[int], Value], most: int) -> Unit:
    s, m = _six_bit_scales(e, p, 4)
    minima = [_negative(e, e.b.fmul(_half(e, p, 2), m))]
    return Unit(codes, [e.b.fmul(_half(e, p, 0), s)], most, minima=minima)


def _q4_k(e: Generic, block: Block) -> Unit:
    p = block(0)
    return _q4_or_q5_k(e, p, lambda j: _low_bits(e, e.load(V32B, p, 16 + j // 2 * 32), j % 2 * 4, 15), most=15)


def _q5_k(e: Generic, block: Block) -> Unit:
    p = block(0)

    def codes(j: int) -> Value:
        low = _low_bits(e, e.load(V32B, p, 48 + j // 2 * 32), j % 2 * 4, 15)
        return e.b.or_(low, _low_bits(e, e.load(V32B, p, 16), j - 4, 16))

    return _q4_or_q5_k(e, p, codes, most=31)


def _q6_k(e: Generic, block: Block) -> Unit:
    p = block(0)

    def codes(j: int) -> Value:
        half, part = divmod(j, 4)
        low = _low_bits(e, e.load(V32B, p, half * 64 + part % 2 * 32), part // 2 * 4, 15)
        return e.b.or_(low, _low_bits(e, e.load(V32B, p, 128 + half * 32), part * 2 - 4, 48))

    return Unit(codes, _by_halves(e, _half(e, p, 208), e.load(V16B, p, 192), signed=True), most=63, offset=32)


def _q2_k(e: Generic, block: Block) -> Unit:
    p = block(0)
    both = e.load(V16B, p, 0)
    minima = _by_halves(e, _half(e, p, 82), _low_bits(e, both, 4, 15))
    return Unit(lambda j: _low_bits(e, e.load(V32B, p, 16 + j // 4 * 32), j % 4 * 2, 3),
                _by_halves(e, _half(e, p, 80), _low_bits(e, both, 0, 15)), most=3, minima=[_negative(e, m) for m in minima])


def _q3_k(e: Generic, block: Block) -> Unit:
    p = block(0)

    def codes(j: int) -> Value:
        low = _low_bits(e, e.load(V32B, p, 32 + j // 4 * 32), j % 4 * 2, 3)
        return e.b.or_(low, _low_bits(e, e.load(V32B, p, 0), j - 2, 4))

    low = e.load(V8B, p, 96)
    fours = e.join(_low_bits(e, low, 0, 15), _low_bits(e, low, 4, 15))
    high = e.cast(e.b.lshr(e.splat(e.load(I32, p, 104), 4), e.constant(V4I, [0, 2, 4, 6])), V16B)
    scales = e.b.sub(e.b.or_(fours, _low_bits(e, _low_bits(e, high, 0, 3), -4, 48)), e.constant(V16B, 32))
    return Unit(codes, _by_halves(e, _half(e, p, 108), scales, signed=True), most=7, offset=4)


def _iq4_xs(e: Generic, block: Block) -> Unit:
    p = block(0)

    def field(value: Value, width: int) -> Value:
        shifted = e.b.lshr(e.splat(value), e.constant(V8I, [width * j for j in range(8)]))
        return e.b.and_(shifted, e.constant(V8I, (1 << width) - 1))

    high = field(e.b.zext(e.load(I16, p, 2), I32), 2)
    scales = e.b.or_(field(e.load(I32, p, 4), 4), e.b.shl(high, e.constant(V8I, 4)))
    d = e.b.fmul(_half(e, p, 0), e.b.sitofp(e.b.sub(scales, e.constant(V8I, 32)), vector(F32, 8)))
    return Unit(lambda j: e.lookup(IQ4_VALUES, _nibbles(e, p, 8 + 16 * j)), [d], most=127, signed=True)


UNPACK: dict[str, Callable[[Generic, Block], Unit]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "IQ4_NL": _iq4_nl, "MXFP4": _mxfp4,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_XS": _iq4_xs,
}
