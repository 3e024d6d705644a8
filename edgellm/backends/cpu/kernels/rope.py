"""Rotary embedding: rotates pairs of dimensions of each head by the angles in the step's tables."""
from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu.kernels._partition import first_item
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.words_rope import ROPE_ROWS


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_f32, store_f32 = isa.load_i64, isa.load_f32, isa.store_f32
    # Bytes from pair to pair, and between the two of a pair (0: half of the rotary dims).
    step_bytes, apart = {"norm": (8, 4), "neox": (4, 0)}[variant]
    arguments = ROPE_ROWS.reader(isa, "step x x_stride out out_stride cos sin heads dim n_rot count")

    def rope(op, ith, nth):
        step, x, x_stride, out, out_stride, cos, sin, heads, dim, n_rot, count = arguments(op)
        half = n_rot // 2
        second = apart if apart != 0 else half * 4
        rows = load_i64(step, count * 8)
        for item in range(first_item(rows, heads, ith, nth), first_item(rows, heads, ith + 1, nth)):
            row, head = item // heads, item % heads
            source, target = x + row * x_stride + head * dim * 4, out + row * out_stride + head * dim * 4
            c, s = cos + row * half * 4, sin + row * half * 4
            for i in range(half):
                a, b = load_f32(source, i * step_bytes), load_f32(source, i * step_bytes + second)
                u, v = load_f32(c, i * 4), load_f32(s, i * 4)
                store_f32(target, i * step_bytes, a * u - b * v)
                store_f32(target, i * step_bytes + second, a * v + b * u)
            for j in range(n_rot, dim):
                store_f32(target, j * 4, load_f32(source, j * 4))

    return rope
