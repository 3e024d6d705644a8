"""Probabilities of the values of a row: of a classifier's few labels, so that a thread does a row by itself."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu.ops.elementwise import ELEMENTWISE
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    exp, splat, first = isa("exp_f32x8 splat_f32x8 first_f32x8")
    arguments = ELEMENTWISE.reader(isa, "step a a_stride out out_stride n count")

    def softmax(op, ith, nth):
        step, a, a_stride, out, out_stride, n, count = arguments(op)
        for row in range(ith, load_i64(step, count * 8), nth):
            x, y = a + row * a_stride, out + row * out_stride
            top, total = load_f32(x, 0), np.float32(0)
            for j in range(1, n):
                top = max(top, load_f32(x, j * 4))
            for j in range(n):
                weight = first(exp(splat(load_f32(x, j * 4) - top)))
                store_f32(y, j * 4, weight)
                total += weight
            for j in range(n):
                store_f32(y, j * 4, load_f32(y, j * 4) / total)

    return {"rows": softmax}[variant]
