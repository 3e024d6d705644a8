"""Whole groups of affine quants as float32: step * code + low, codes of 2 to 8 bits one after the other from the lowest bit."""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import types

from edgellm.backends.cpu.affine import DECODE
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import I8, I16, I32, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic

i64, f32, void = types.int64, types.float32, types.void
PIECES = {4: I32, 2: I16, 1: I8}  # bytes that eight codes are loaded by: none that are not theirs


def build(variant: str, isa: Isa) -> KernelFunction:
    bits, load_f32 = int(variant), isa.load_f32
    arguments = DECODE.reader(isa, "quants steps lows out groups octets")
    octet = isa.make("octet", void, (i64, f32, f32, i64), partial(_octet, bits))

    def affine(op, ith, nth):
        quants, steps, lows, out, groups, octets = arguments(op)
        for group in range(groups * ith // nth, groups * (ith + 1) // nth):
            step, low = load_f32(steps, 4 * group), load_f32(lows, 4 * group)
            for k in range(group * octets, (group + 1) * octets):
                octet(quants + bits * k, step, low, out + 32 * k)

    return affine


def _octet(bits: int, e: Generic, address: Any, step: Any, low: Any, out: Any) -> None:
    """Eight weights from `bits` bytes."""
    b, at, wide, word = e.b, 0, I32 if bits <= 4 else I64, None
    for size, kind in PIECES.items():
        if bits & size or (size == 4 and bits == 8):
            for _ in range(2 if bits == 8 else 1):
                part = e.load(kind, address, at)
                part = part if kind is wide else b.zext(part, wide)
                word = part if word is None else b.or_(word, b.shl(part, wide(8 * at)))
                at += size
    codes = b.lshr(e.splat(word), e.constant(vector(wide, 8), [bits * k for k in range(8)]))
    codes = codes if wide is I32 else b.trunc(codes, V8I)
    numbers = b.uitofp(b.and_(codes, e.constant(V8I, (1 << bits) - 1)), V8F)
    e.store(e.fma(numbers, e.splat(step), e.splat(low)), out)
