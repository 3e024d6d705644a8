"""Types of 32 elements whose scale is that of the widest value: two vectors a block, one block after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from edgellm.backends.cpu.kernels.encode import lanes
from edgellm.backends.cpu.kernels.encode.lanes import F32X16, LANE_BYTES, LANES, V16B, V16F, V16I
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import I32, I64
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.formats.codecs import CODECS

F = np.float32
ZERO, ONE, HALF = F(0), F(1), F(0.5)
BLOCK = 32
i64, f32, void = types.int64, types.float32, types.void
load, splat, larger, smaller = lanes.load, lanes.splat, lanes.larger, lanes.smaller
magnitude, largest, smallest = lanes.magnitude, lanes.largest, lanes.smallest


def build(name: str, isa: Isa) -> KernelFunction:
    load_i64, size = isa.load_i64, CODECS[name].dtype.itemsize
    make = {"Q8_0": _q8_0, "Q4_0": _symmetric, "Q5_0": _symmetric, "Q4_1": _affine, "Q5_1": _affine, "MXFP4": _mxfp4}[name]
    block = make(name, isa)

    def encode(op, ith, nth):
        x, n, out = load_i64(op, 8), load_i64(op, 16), load_i64(op, 24)
        for k in range(n):
            block(x + k * BLOCK * 4, out + k * size)

    return encode


def store_32(isa: Isa, name: str) -> Any:
    """(block, quants of both halves) -> nibbles, and fifth bits where the type has them."""
    fields = CODECS[name].dtype.fields
    assert fields is not None
    qs, qh = fields["qs"][1], fields["qh"][1] if "qh" in fields else None

    def emit(e: Generic, block: Any, low: Any, high: Any) -> None:
        b = e.b
        halves = [b.trunc(b.fptosi(half, V16I), V16B) for half in (low, high)]
        nibbles = [b.and_(half, 15) for half in halves]
        e.store(b.or_(nibbles[0], b.shl(nibbles[1], 4)), block, qs)
        if qh is not None:
            quants = e.join(*halves)
            e.store(b.bitcast(b.icmp_unsigned(">", quants, 15), I32), block, qh)

    return isa.make("store_32", void, (i64, F32X16, F32X16), emit)


def _first_widest(isa: Isa) -> Any:
    """(address, magnitude) -> the first of 32 values of this magnitude."""
    load_f32 = isa.load_f32

    def find(x, most):
        for i in range(BLOCK):
            value = load_f32(x, 4 * i)
            if abs(value) == most:
                return value
        return ZERO

    return inline(find)


def _symmetric(name: str, isa: Isa) -> Any:
    top = {"Q4_0": 8, "Q5_0": 16}[name]
    bottom, middle, last = F(-top), F(top) + HALF, F(2 * top - 1)
    store, store_f16, find = store_32(isa, name), isa.store_f16, _first_widest(isa)
    floor = _truncate(isa)

    @inline
    def block(x, out):
        low, high = load(x, 0), load(x, LANE_BYTES)
        d = find(x, largest(larger(magnitude(low), magnitude(high)))) / bottom
        inverse = splat(ONE / d if d != ZERO else ZERO)
        store_f16(out, 0, d)
        store(
            out,
            smaller(floor(low * inverse + splat(middle)), splat(last)),
            smaller(floor(high * inverse + splat(middle)), splat(last)),
        )

    return block


def _affine(name: str, isa: Isa) -> Any:
    top = F({"Q4_1": 15, "Q5_1": 31}[name])
    store, store_f16, floor = store_32(isa, name), isa.store_f16, _truncate(isa)

    @inline
    def block(x, out):
        low, high = load(x, 0), load(x, LANE_BYTES)
        least = smallest(smaller(low, high))
        d = (largest(larger(low, high)) - least) / top
        inverse = splat(ONE / d if d != ZERO else ZERO)
        store_f16(out, 0, d)
        store_f16(out, 2, least)
        store(
            out,
            smaller(floor((low - splat(least)) * inverse + splat(HALF)), splat(top)),
            smaller(floor((high - splat(least)) * inverse + splat(HALF)), splat(top)),
        )

    return block


def _q8_0(name: str, isa: Isa) -> Any:
    store_f16, store_quants, most = isa.store_f16, lanes.store_quants, F(127)
    rounded = isa.make("away", F32X16, (F32X16,), _away)

    @inline
    def block(x, out):
        low, high = load(x, 0), load(x, LANE_BYTES)
        d = largest(larger(magnitude(low), magnitude(high))) / most
        inverse = splat(ONE / d if d != ZERO else ZERO)
        store_f16(out, 0, d)
        store_quants(out, 2, rounded(low * inverse))
        store_quants(out, 2 + LANES, rounded(high * inverse))

    return block


def _away(e: Generic, x: Any) -> Any:
    """Nearest integers, halves away from zero."""
    b = e.b
    size = lanes._magnitude(e, x)
    even = e.nearest(size)[0]
    is_half = b.fcmp_ordered("==", b.fsub(size, even), 0.5)
    rounded = b.select(is_half, b.fadd(even, 1.0), even)
    sign = b.and_(e.cast(x, V16I), -0x80000000)
    return e.cast(b.or_(e.cast(rounded, V16I), sign), V16F)


def _truncate(isa: Isa) -> Any:
    return isa.make("truncate", F32X16, (F32X16,), lambda e, x: e.b.sitofp(e.b.fptosi(x, V16I), V16F))


def _mxfp4(name: str, isa: Isa) -> Any:
    store, store_i8 = store_32(isa, name), isa.store_i8
    exponent = isa.make("exponent", i64, (f32,), _exponent)
    half_scale = isa.make("half_scale", f32, (i64,), _half_scale)
    quants = isa.make("e2m1", F32X16, (F32X16, f32), _e2m1)

    @inline
    def block(x, out):
        low, high = load(x, 0), load(x, LANE_BYTES)
        e = exponent(largest(larger(magnitude(low), magnitude(high))))
        d = half_scale(e)
        store_i8(out, 0, e)
        store(out, quants(low, d), quants(high, d))

    return block


def _exponent(e: Generic, most: Any) -> Any:
    """floor(log2(most)) - 2 with a bias of 127, 0 at least."""
    b = e.b
    biased = b.sub(b.lshr(b.bitcast(most, I32), 23), 2)
    return b.sext(b.select(b.icmp_signed(">", biased, 0), biased, 0), I64)


def _half_scale(e: Generic, exponent: Any) -> Any:
    """2^(exponent - 128)."""
    b = e.b
    exponent = b.trunc(exponent, I32)
    tiny = b.shl(0x200000, exponent)
    normal = b.shl(b.sub(exponent, 1), 23)
    return b.bitcast(b.select(b.icmp_signed("<", exponent, 2), tiny, normal), V16F.element)


def _e2m1(e: Generic, x: Any, d: Any) -> Any:
    """Quants of the values nearest to x / d, the smaller of two; zeros have no sign."""
    b, size, step = e.b, lanes._magnitude(e, x), e.splat(d, LANES)
    best, quant = size, e.constant(V16F, 0.0)
    for index, value in enumerate((1, 2, 3, 4, 6, 8, 12), start=1):
        error = lanes._magnitude(e, b.fsub(b.fmul(float(value), step), size))
        nearer = b.fcmp_ordered("<", error, best)
        best, quant = b.select(nearer, error, best), b.select(nearer, float(index), quant)
    negative = b.and_(b.fcmp_ordered("<", x, 0.0), b.fcmp_ordered(">", quant, 0.0))
    return b.select(negative, b.fadd(quant, 8.0), quant)
