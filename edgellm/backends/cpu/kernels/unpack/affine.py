"""Whole groups of affine quants as float32: step * code + low, codes of 2 to 8 bits one after the other from the lowest bit."""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import types

from edgellm.backends.cpu.affine import DECODE
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import I8, I16, I32, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic

i64, f32, void = types.int64, types.float32, types.void


def build(variant: str, isa: Isa) -> KernelFunction:
    bits, load_f32 = int(variant), isa.load_f32
    arguments = DECODE.reader(isa, "quants steps lows out groups octets")
    octet = isa.make("octet", void, (i64, f32, f32, i64), partial(_store_octet, bits))

    def affine(op, ith, nth):
        quants, steps, lows, out, groups, octets = arguments(op)
        for group in range(groups * ith // nth, groups * (ith + 1) // nth):
            step, low = load_f32(steps, 4 * group), load_f32(lows, 4 * group)
            for k in range(group * octets, (group + 1) * octets):
                octet(quants + bits * k, step, low, out + 32 * k)

    return affine


def _store_octet(bits: int, e: Generic, address: Any, step: Any, low: Any, out: Any) -> None:
    e.store(octet(e, bits, address, e.splat(step), e.splat(low)), out)


def octet(e: Generic, bits: int, address: Any, step: Any, low: Any) -> Any:
    """Eight weights from `bits` bytes, in lanes; so are step and low."""
    return e.fma(e.b.uitofp(_codes(e, bits, address), V8F), step, low)


def _codes(e: Generic, bits: int, address: Any) -> Any:
    b = e.b
    if bits == 8:
        return b.zext(e.load(vector(I8, 8), address), V8I)
    if bits > 4:  # four codes each from the first and the last four bytes
        words = e.join(e.splat(e.load(I32, address), 4), e.splat(e.load(I32, address, bits - 4), 4))
        shifts = [bits * k - (8 * (bits - 4) if k > 3 else 0) for k in range(8)]
    else:
        word = e.load(I32, address) if bits == 4 else b.zext(e.load(I16, address), I32)
        if bits == 3:
            word = b.or_(word, b.shl(b.zext(e.load(I8, address, 2), I32), I32(16)))
        words, shifts = e.splat(word), [bits * k for k in range(8)]
    return b.and_(b.lshr(words, e.constant(V8I, shifts)), e.constant(V8I, (1 << bits) - 1))
