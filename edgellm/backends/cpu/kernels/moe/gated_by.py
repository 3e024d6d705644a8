"""Rows times the sigmoid of another row's product with one vector: how much of a shared expert counts."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu.kernels.rowwise.rows import product_of, scaled_of
from edgellm.backends.cpu.ops.moe import GATED_BY
from edgellm.backends.cpu.simd import Isa, KernelFunction

ONE = np.float32(1.0)


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, splat, exp, first = isa("load_i64 splat_f32x8 exp_f32x8 first_f32x8")
    product, scaled = product_of(isa), scaled_of(isa)
    arguments = GATED_BY.reader(isa, "step y y_stride x x_stride out out_stride weight n k count")

    def gated(op, ith, nth):
        step, y, y_stride, x, x_stride, out, out_stride, weight, n, k, count = arguments(op)
        rows = load_i64(step, count * 8)
        for row in range(rows * ith // nth, rows * (ith + 1) // nth):
            gate = ONE / (ONE + first(exp(splat(-product(x + row * x_stride, weight, k)))))
            scaled(y + row * y_stride, out + row * out_stride, 0, n, gate)

    return {"rows": gated}[variant]
