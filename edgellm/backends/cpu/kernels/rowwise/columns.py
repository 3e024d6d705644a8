"""Columns of each piece of a row, side by side."""

from __future__ import annotations

from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.ops.heads import COLUMNS
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    arguments = COLUMNS.reader(isa, "step x x_stride out out_stride pieces width first n count")

    def columns(op, ith, nth):
        step, x, x_stride, out, out_stride, pieces, width, first, n, count = arguments(op)
        rows = load_i64(step, count * 8)
        for item in range(first_item(rows, pieces, ith, nth), first_item(rows, pieces, ith + 1, nth)):
            row, piece = item // pieces, item % pieces
            source, target = x + row * x_stride + (piece * width + first) * 4, out + row * out_stride + piece * n * 4
            for j in range(n):
                store_f32(target, j * 4, load_f32(source, j * 4))

    return columns
