"""Blocks of 32 keys' or values' numbers as quants with one f16 scale, as IR: "q8_0" in bytes, "q4_0" in halves of bytes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any  # an IR value has no static type

from numba.core import cgutils

from edgellm.backends.cpu.kernels.attention.kv_forms import INT16
from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic

LANES, PARTS, BLOCK = 8, 4, 32
V8B, V16B, V16H = vector(I8, LANES), vector(I8, 16), vector(I16, 16)
LARGEST_QUERY = 32767.0  # of a query: sums of four products with bytes are exact in f32
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
    counted = [e.b.add(each, 8) for each in rounded]
    for part in range(2):  # the second half of a block stands in the upper halves of its bytes
        both = e.b.or_(counted[part], e.b.shl(counted[part + 2], 4))
        e.store(e.b.trunc(both, V8B), quants, LANES * part)


def read(e: Generic, kv_type: str, quants: Any, scale: Any, target: Any) -> None:
    """32 quants as f32."""
    d = e.from_f16(e.splat(e.load(I16, scale)))
    for part in range(PARTS):
        e.store(e.b.fmul(eight(e, kv_type, quants, part), d), target, 32 * part)


def eight(e: Generic, kv_type: str, quants: Any, place: int) -> Any:
    """Quants 8 * place to 8 * place + 7 of a block, as f32 without scale."""
    b = e.b
    if kv_type == "q8_0":
        return b.sitofp(b.sext(e.load(V8B, quants, LANES * place), V8I), V8F)
    pair = b.zext(e.load(V8B, quants, LANES * (place % 2)), V8I)
    half = b.lshr(pair, 4) if place >= 2 else b.and_(pair, 15)
    return b.sitofp(b.sub(half, 8), V8F)


def as_int16(e: Generic, kv_type: str, rows: Sequence[Any], block: Any) -> list[Any]:
    """Quants of a block of rows as i16, the first 16 of each row side by side, and the others."""
    b, kind = e.b, vector(I16, 16 * len(rows))

    def joined(of_16: Any, size: int, offset: int) -> Any:
        return e.join_all([e.load(of_16, e.at(row, block, size), offset) for row in rows])

    if kv_type == INT16:
        return [joined(V16H, 2 * BLOCK, offset) for offset in (0, 32)]
    if kv_type == "q8_0":
        return [b.sext(joined(V16B, BLOCK, offset), kind) for offset in (0, 16)]
    pairs = b.zext(joined(V16B, BLOCK // 2, 0), kind)
    halves = [b.and_(pairs, 15), b.lshr(pairs, 4)]
    return [b.sub(half, 8) for half in halves]


def block_as_int16(e: Generic, kv_type: str, row: Any, block: Any, n: int) -> list[Any]:
    """Quants of a block of a row as i16, n (16 or 32) in a vector."""
    b, kind = e.b, vector(I16, n)
    if n == BLOCK // 2:
        return as_int16(e, kv_type, [row], block)
    if kv_type == INT16:
        return [e.load(kind, e.at(row, block, 2 * BLOCK))]
    if kv_type == "q8_0":
        return [b.sext(e.load(vector(I8, BLOCK), e.at(row, block, BLOCK)), kind)]
    pairs = e.load(V16B, e.at(row, block, BLOCK // 2))
    halves = b.lshr(b.zext(e.join(pairs, pairs), kind), [0] * 16 + [4] * 16)
    return [b.sub(b.and_(halves, 15), 8)]


def scale_at(e: Generic, kv_type: str, row: Any, dim: Any, block: Any) -> Any:
    """Where the f16 scale of a block of a row of `dim` values stands."""
    scales = e.b.add(row, dim if kv_type == "q8_0" else e.b.lshr(dim, 1))
    return e.at(scales, block, 2)


def int16_scale_at(e: Generic, keys: int, rows: Any, dim: Any, block: Any, key: Any) -> Any:
    """Where the f32 scale of a block of dims of a key stands in the form `INT16` of so many keys; the next keys' follow."""
    b = e.b
    return b.add(rows, e.at(b.mul(dim, 2 * keys), b.add(b.mul(block, keys), key), 4))


def row_to_int16(e: Generic, kv_type: str, keys: int, row: Any, dim: Any, key: Any, target: Any) -> None:
    """A row of quants to row `key` of the form `INT16` of so many keys."""
    b = e.b
    to = e.at(target, key, b.mul(dim, 2))
    with e.loop(b.udiv(dim, BLOCK)) as index:
        for half, value in enumerate(as_int16(e, kv_type, [row], index)):
            e.store(value, e.at(to, index, 2 * BLOCK), 32 * half)
        scale = e.from_f16(e.splat(e.load(I16, scale_at(e, kv_type, row, dim, index))))
        e.store(e.lane(scale, 0), int16_scale_at(e, keys, target, dim, index, key))


def query_to_int16(e: Generic, row: Any, dim: Any) -> None:
    """A query of `dim` f32, full blocks, to i16 in its place, and after these the f32 that they are multiples of. A value that is
    not finite makes that one not finite either.
    """
    b, largest = e.b, cgutils.alloca_once_value(e.b, e.constant(V8I, 0))
    with e.loop(b.udiv(dim, LANES)) as index:
        size = _size_bits(e, e.load(V8F, e.at(row, index, 4 * LANES)))
        b.store(_larger_bits(e, size, b.load(largest)), largest)
    step, inverse = _step(e, b.load(largest), LARGEST_QUERY)
    with e.loop(b.udiv(dim, BLOCK)) as index:
        x = [e.load(V8F, e.at(row, index, 4 * BLOCK), 4 * LANES * part) for part in range(PARTS)]
        integers = [rounded(e, each, inverse, LARGEST_QUERY) for each in x]
        for half in (0, 1):
            both = b.trunc(e.join(integers[2 * half], integers[2 * half + 1]), V16H)
            e.store(both, e.at(row, index, 2 * BLOCK), 32 * half)
    e.store(step, e.at(row, dim, 2))


def step_of(e: Generic, x: Sequence[Any], largest: float) -> tuple[Any, Any]:
    """The f32 of which vectors of f32 become multiples up to `largest`, and its inverse in all lanes. A value that is not finite
    makes it not finite either.
    """
    return _step(e, functools.reduce(lambda p, q: _larger_bits(e, p, q), [_size_bits(e, each) for each in x]), largest)


def rounded(e: Generic, x: Any, inverse: Any, largest: float) -> Any:
    """x * inverse to the nearest integers (i32), which are `largest` at most."""
    return e.nearest(_between(e, e.b.fmul(x, inverse), -largest, largest))[1]


def _step(e: Generic, sizes: Any, largest: float) -> tuple[Any, Any]:
    top = e.cast(e.fold(sizes, lambda p, q: _larger_bits(e, p, q)), F32)
    step = e.b.fdiv(top, largest)
    return step, _inverse(e, e.splat(step, sizes.type.count))


def _size_bits(e: Generic, x: Any) -> Any:
    kind = vector(I32, x.type.count)
    return e.b.and_(e.cast(x, kind), 0x7FFFFFFF)


def _larger_bits(e: Generic, p: Any, q: Any) -> Any:
    """Bits of magnitudes compare as integers do, NaN above all."""
    return e.b.select(e.b.icmp_signed(">", p, q), p, q)


def _byte_step(e: Generic, x: Sequence[Any]) -> Any:
    return e.b.fdiv(_all(e, [e.larger(each, e.b.fsub(0.0, each)) for each in x], e.larger), 127.0)


def _half_byte_step(e: Generic, x: Sequence[Any], source: Any) -> Any:
    """The step of those tried, one in each lane, that all 32 values are nearest to; its sign gives the largest value -8."""
    b = e.b
    top, bottom = _all(e, x, e.larger), _all(e, x, e.smaller)
    largest = b.select(b.fcmp_ordered(">", top, b.fneg(bottom)), top, bottom)
    steps = b.fmul(e.splat(largest), [-part / 8 for part in TRIED])
    inverse, error = _inverse(e, steps), e.constant(V8F, 0.0)
    for i in range(PARTS * LANES):
        value = e.splat(e.load(F32, source, 4 * i))
        quant = e.nearest(_between(e, b.fmul(value, inverse), -8.0, 7.0))[0]
        off = b.fsub(value, b.fmul(quant, steps))
        error = e.fma(off, off, error)
    least, zero = b.fcmp_ordered("<=", error, e.splat(e.fold(error, e.smaller))), e.constant(V8F, 0.0)
    taken = b.select(least, steps, zero)  # of equals the largest; all have the same sign
    return b.fadd(e.fold(taken, e.larger), e.fold(taken, e.smaller))


def _all(e: Generic, x: Sequence[Any], combine: Any) -> Any:
    """All lanes of all parts to one."""
    return e.fold(combine(combine(x[0], x[1]), combine(x[2], x[3])), combine)


def _inverse(e: Generic, d: Any) -> Any:
    """1 / d, 0 where d is 0."""
    zero = e.constant(d.type, 0.0)
    return e.b.select(e.b.fcmp_unordered("!=", d, zero), e.b.fdiv(1.0, d), zero)


def _between(e: Generic, x: Any, low: float, high: float) -> Any:
    return e.larger(e.smaller(x, e.constant(x.type, high)), e.constant(x.type, low))
