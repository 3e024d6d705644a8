"""Rotary embedding: rotates pairs of dimensions of each head by the angles in the step's tables."""

from __future__ import annotations

from numba import types

from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.ops.attention import ROPE
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, Value, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic

PAIRS = 8  # that are rotated at once


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    # Bytes from pair to pair, and between the two of a pair (0: half of the rotary dims).
    step_bytes, apart = {"norm": (8, 4), "neox": (4, 0), "axial": (4, 0)}[variant]
    tables = 2 if variant == "axial" else 1  # side by side: heads take them in turn
    rotate = isa.make("rotate", types.void, (types.int64,) * 5, _side_by_side if variant == "norm" else _halves)
    arguments = ROPE.reader(isa, "step x x_stride out out_stride cos sin heads dim n_rot count")

    def rope(op, ith, nth):
        step, x, x_stride, out, out_stride, cos, sin, heads, dim, n_rot, count = arguments(op)
        half = n_rot // 2
        second = apart if apart != 0 else half * 4
        rows = load_i64(step, count * 8)
        for item in range(first_item(rows, heads, ith, nth), first_item(rows, heads, ith + 1, nth)):
            row, head = item // heads, item % heads
            source, target = x + row * x_stride + head * dim * 4, out + row * out_stride + head * dim * 4
            c, s = cos + (row * tables + head % tables) * half * 4, sin + (row * tables + head % tables) * half * 4
            full = half // PAIRS * PAIRS
            for i in range(0, full, PAIRS):
                at = i * step_bytes
                rotate(source + at, target + at, second, c + i * 4, s + i * 4)
            for i in range(full, half):
                a, b = load_f32(source, i * step_bytes), load_f32(source, i * step_bytes + second)
                u, v = load_f32(c, i * 4), load_f32(s, i * 4)
                store_f32(target, i * step_bytes, a * u - b * v)
                store_f32(target, i * step_bytes + second, a * v + b * u)
            for j in range(n_rot, dim):
                store_f32(target, j * 4, load_f32(source, j * 4))

    return rope


def _side_by_side(e: Generic, source: Value, target: Value, second: Value, cos: Value, sin: Value) -> None:
    """Pairs of neighbours."""
    both = e.load(vector(F32, 2 * PAIRS), source)
    a, b = (e.pick(both, range(first, 2 * PAIRS, 2)) for first in (0, 1))
    a, b = _rotated(e, a, b, cos, sin)
    e.store(e.shuffle(a, b, [i + side for i in range(PAIRS) for side in (0, PAIRS)]), target)


def _halves(e: Generic, source: Value, target: Value, second: Value, cos: Value, sin: Value) -> None:
    """Pairs whose second values are `second` bytes after the first."""
    a, b = _rotated(e, e.load(V8F, source), e.load(V8F, e.b.add(source, second)), cos, sin)
    e.store(a, target)
    e.store(b, e.b.add(target, second))


def _rotated(e: Generic, a: Value, b: Value, cos: Value, sin: Value) -> tuple[Value, Value]:
    u, v = e.load(V8F, cos), e.load(V8F, sin)
    return e.b.fsub(e.b.fmul(a, u), e.b.fmul(b, v)), e.b.fadd(e.b.fmul(a, v), e.b.fmul(b, u))
