"""Blocks of 32 keys' or values' numbers as quants with one f16 scale, as IR: "q8_0" in bytes, "q4_0" in halves of bytes."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # an IR value has no static type

from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic

LANES, PARTS = 8, 4
V8B = vector(I8, LANES)
# Steps of "q4_0" that are tried, as parts of the one that just holds the largest value: the one with the least squared error is
# taken, which on stories3M takes KL divergence from 0.090 to 0.075.
TRIED = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15)


def write(e: Generic, kv_type: str, source: Any, quants: Any, scale: Any) -> None:
    """Round 32 f32. A value that is not finite makes the scale not finite either, so that it shows in the result."""
    x = [e.load(V8F, source, 32 * part) for part in range(PARTS)]
    odd = _all(e, [e.b.fsub(each, each) for each in x], e.b.fadd)
    step = _byte_step(e, x) if kv_type == "q8_0" else _half_byte_step(e, x, source)
    bits = e.to_f16(e.splat(e.b.fadd(step, odd)))
    e.store(e.lane(bits, 0), scale)
    d = e.from_f16(bits)
    inverse = _inverse(e, d)
    low, high = (-127.0, 127.0) if kv_type == "q8_0" else (-8.0, 7.0)
    rounded = [e.nearest(_between(e, e.b.fmul(each, inverse), low, high))[1] for each in x]
    if kv_type == "q8_0":
        for part, each in enumerate(rounded):
            e.store(e.b.trunc(each, V8B), quants, LANES * part)
        return
    counted = [e.b.add(each, e.constant(V8I, 8)) for each in rounded]
    for part in range(2):                        # the second half of a block stands in the upper halves of its bytes
        both = e.b.or_(counted[part], e.b.shl(counted[part + 2], e.constant(V8I, 4)))
        e.store(e.b.trunc(both, V8B), quants, LANES * part)


def read(e: Generic, kv_type: str, quants: Any, scale: Any, target: Any) -> None:
    """32 quants as f32."""
    d = e.from_f16(e.splat(e.load(I16, scale)))
    for part in range(PARTS):
        e.store(e.b.fmul(eight(e, kv_type, quants, part), d), target, 32 * part)


def eight(e: Generic, kv_type: str, quants: Any, place: Any) -> Any:
    """Quants 8 * place to 8 * place + 7 of a row of blocks, as f32 without scale. A `place` that is known only when the kernel
    runs (an IR value) is within the first block.
    """
    b, known = e.b, isinstance(place, int)
    if kv_type == "q8_0":
        at = e.load(V8B, quants, LANES * place) if known else e.load(V8B, b.add(quants, b.mul(place, I64(LANES))))
        return b.sitofp(b.sext(at, V8I), V8F)
    four, fifteen, eight = (e.constant(V8I, number) for number in (4, 15, 8))
    if known:
        pair = b.zext(e.load(V8B, quants, LANES * (place // PARTS * 2 + place % 2)), V8I)
        half = b.lshr(pair, four) if place % PARTS >= 2 else b.and_(pair, fifteen)
    else:
        pair = b.zext(e.load(V8B, b.add(quants, b.mul(b.and_(place, I64(1)), I64(LANES)))), V8I)
        shift = e.splat(b.trunc(b.shl(b.and_(place, I64(2)), I64(1)), I32))
        half = b.and_(b.lshr(pair, shift), fifteen)
    return b.sitofp(b.sub(half, eight), V8F)


def _byte_step(e: Generic, x: Sequence[Any]) -> Any:
    return e.b.fdiv(_all(e, [e.larger(each, e.b.fsub(e.constant(V8F, 0.0), each)) for each in x], e.larger), e.constant(F32, 127.0))


def _half_byte_step(e: Generic, x: Sequence[Any], source: Any) -> Any:
    """The step of those tried, one in each lane, that all 32 values are nearest to; its sign gives the largest value -8."""
    b = e.b
    top, bottom = _all(e, x, e.larger), _all(e, x, e.smaller)
    largest = b.select(b.fcmp_ordered(">", top, b.fneg(bottom)), top, bottom)
    steps = b.fmul(e.splat(largest), e.constant(V8F, [-part / 8 for part in TRIED]))
    inverse, error = _inverse(e, steps), e.constant(V8F, 0.0)
    for i in range(PARTS * LANES):
        value = e.splat(e.load(F32, source, 4 * i))
        quant = e.nearest(_between(e, b.fmul(value, inverse), -8.0, 7.0))[0]
        off = b.fsub(value, b.fmul(quant, steps))
        error = e.fma(off, off, error)
    least, zero = b.fcmp_ordered("<=", error, e.splat(e.fold(error, e.smaller))), e.constant(V8F, 0.0)
    taken = b.select(least, steps, zero)         # of equals the largest; all have the same sign
    return b.fadd(e.fold(taken, e.larger), e.fold(taken, e.smaller))


def _all(e: Generic, x: Sequence[Any], combine: Any) -> Any:
    """All lanes of all parts to one."""
    return e.fold(combine(combine(x[0], x[1]), combine(x[2], x[3])), combine)


def _inverse(e: Generic, d: Any) -> Any:
    """1 / d, 0 where d is 0."""
    zero = e.constant(V8F, 0.0)
    return e.b.select(e.b.fcmp_unordered("!=", d, zero), e.b.fdiv(e.constant(V8F, 1.0), d), zero)


def _between(e: Generic, x: Any, low: float, high: float) -> Any:
    return e.larger(e.smaller(x, e.constant(V8F, high)), e.constant(V8F, low))
