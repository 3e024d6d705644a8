"""Vectors in the place of tokens: rows of a step that replace others, or are added to them."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.ops.vision import INJECT
from edgellm.backends.cpu.simd import Isa, KernelFunction

COUNT = abi.N_TOKENS * 8


def build(variant: str, isa: Isa) -> KernelFunction:
    """Threads share the rows; a row without a vector is copied."""
    load_i64, load_i32, load_f32, store_f32 = isa.load_i64, isa.load_i32, isa.load_f32, isa.store_f32
    arguments = INJECT.reader(isa, "step x x_stride out out_stride which rows n")
    added = variant == "add"

    def inject(op, ith, nth):
        step, x, x_stride, out, out_stride, which, rows, n = arguments(op)
        count, source, stride = load_i64(step, COUNT), load_i64(rows, 0), load_i64(rows, 8)
        for r in range(count * ith // nth, count * (ith + 1) // nth):
            number = load_i32(which, r * 4)
            for j in range(n):
                value = np.float32(0)
                if number < 0 or added:
                    value = load_f32(x, r * x_stride + j * 4)
                if number >= 0:
                    value += load_f32(source, number * stride + j * 4)
                store_f32(out, r * out_stride + j * 4, value)

    return {"replace": inject, "add": inject}[variant]
