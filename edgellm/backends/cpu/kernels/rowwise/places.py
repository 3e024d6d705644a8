"""Products of each head with the relative positions of every row and column of patches, as it sees them from its own place."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.rowwise.rows import product_of
from edgellm.backends.cpu.ops.vision import PLACES
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    product, scale_at = product_of(isa), PLACES.at("scale")
    arguments = PLACES.reader(isa, "step x x_stride at at_stride out out_stride tables table_bytes heads dim side width count")

    def places(op, ith, nth):
        step, x, x_stride, at, at_stride, out, out_stride, tables, table_bytes, heads, dim, largest, width, count = arguments(op)
        rows, scale = load_i64(step, count * 8), load_f32(op, scale_at)
        for item in range(first_item(rows, heads, ith, nth), first_item(rows, heads, ith + 1, nth)):
            row, head = item // heads, item % heads
            own, query = at + row * at_stride, x + row * x_stride + head * dim * 4
            target = out + row * out_stride + head * width * 4
            side, first = np.int64(load_f32(own, 8)), np.int64(load_f32(own, 12))
            for j in range(width):
                store_f32(target, j * 4, np.float32(0))
            for axis in range(2):
                last = first + np.int64(load_f32(own, axis * 4)) + side - 1
                table = tables + axis * table_bytes
                for j in range(side):
                    score = product(query, table + (last - j) * dim * 4, dim)
                    store_f32(target, (axis * largest + j) * 4, score * scale)
            store_f32(target, (width - 1) * 4, np.float32(1))

    return places
