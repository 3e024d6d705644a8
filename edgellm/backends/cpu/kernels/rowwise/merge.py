"""Neighbouring patches of an image become one row: side by side, channel by channel, or their mean."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.ops.vision import MERGE
from edgellm.backends.cpu.simd import Isa, KernelFunction

COUNT = abi.N_OUTPUTS * 8


def build(variant: str, isa: Isa) -> KernelFunction:
    """Threads share the rows that leave."""
    load_i64, load_i32, load_f32, store_f32 = isa("load_i64 load_i32 load_f32 store_f32")
    arguments = MERGE.reader(isa, "step x x_stride out out_stride first rows n")
    mean, channels = variant == "mean", variant == "channels"

    def merge(op, ith, nth):
        step, x, x_stride, out, out_stride, first, rows, n = arguments(op)
        outputs = load_i64(step, COUNT)
        part = np.float32(1) / np.float32(rows)
        for r in range(outputs * ith // nth, outputs * (ith + 1) // nth):
            source, target = x + load_i32(first, r * 4) * x_stride, out + r * out_stride
            if mean:
                for j in range(n):
                    total = np.float32(0)
                    for row in range(rows):
                        total += load_f32(source, row * x_stride + j * 4)
                    store_f32(target, j * 4, total * part)
            elif channels:
                for row in range(rows):
                    for j in range(n):
                        store_f32(target, (j * rows + row) * 4, load_f32(source, row * x_stride + j * 4))
            else:
                for row in range(rows):
                    for j in range(n):
                        store_f32(target, (row * n + j) * 4, load_f32(source, row * x_stride + j * 4))

    return merge
