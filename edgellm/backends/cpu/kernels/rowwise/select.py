"""Copies the rows whose logits are wanted, so that the output matrix is multiplied with these only."""

from __future__ import annotations

from edgellm.backends.cpu.ops.rows import SELECT
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32, load_f32, store_f32 = isa("load_i64 load_i32 load_f32 store_f32")
    arguments = SELECT.reader(isa, "step x x_stride out out_stride wanted n")

    def rows(op, ith, nth):
        step, x, x_stride, out, out_stride, wanted, n = arguments(op)
        outputs = load_i64(step, 8)
        for r in range(outputs * ith // nth, outputs * (ith + 1) // nth):
            source = x + load_i32(wanted, r * 4) * x_stride
            for j in range(n):
                store_f32(out, r * out_stride + j * 4, load_f32(source, j * 4))

    return {"rows": rows}[variant]
