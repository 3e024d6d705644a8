"""Rows times the sigmoid of another row's product with one vector: how much of a shared expert counts."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu.ops.moe import GATED_BY
from edgellm.backends.cpu.simd import Isa, KernelFunction

ONE = np.float32(1.0)


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32, load, store = isa("load_i64 load_f32 store_f32 load_f32x8 store_f32x8")
    fma, mul, splat, zero, exp = isa("fma_f32x8 mul_f32x8 splat_f32x8 zero_f32x8 exp_f32x8")
    hsum, first = isa("hsum_f32x8 first_f32x8")
    arguments = GATED_BY.reader(isa, "step y y_stride x x_stride out out_stride weight n k count")

    def gated(op, ith, nth):
        step, y, y_stride, x, x_stride, out, out_stride, weight, n, k, count = arguments(op)
        rows = load_i64(step, count * 8)
        for row in range(rows * ith // nth, rows * (ith + 1) // nth):
            source, total, j = x + row * x_stride, zero(), 0
            while j + 8 <= k:
                total = fma(load(source, j * 4), load(weight, j * 4), total)
                j += 8
            dot = hsum(total)
            while j < k:
                dot += load_f32(source, j * 4) * load_f32(weight, j * 4)
                j += 1
            gate = ONE / (ONE + first(exp(splat(-dot))))
            source, target, j = y + row * y_stride, out + row * out_stride, 0
            while j + 8 <= n:
                store(target, j * 4, mul(load(source, j * 4), splat(gate)))
                j += 8
            while j < n:
                store_f32(target, j * 4, np.float32(load_f32(source, j * 4) * gate))
                j += 1

    return {"rows": gated}[variant]
