"""Copies the rows whose logits are wanted, so that the output matrix is multiplied with these only."""
from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu.simd import Isa


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_i32, load_f32, store_f32 = isa.load_i64, isa.load_i32, isa.load_f32, isa.store_f32

    def rows(op, ith, nth):
        step, x, x_stride, out, out_stride = load_i64(op, 8), load_i64(op, 16), load_i64(op, 24), load_i64(op, 32), load_i64(op, 40)
        wanted, n = load_i64(op, 48), load_i64(op, 56)
        outputs = load_i64(step, 8)
        for r in range(outputs * ith // nth, outputs * (ith + 1) // nth):
            source = x + load_i32(wanted, r * 4) * x_stride
            for j in range(n):
                store_f32(out, r * out_stride + j * 4, load_f32(source, j * 4))

    return {"rows": rows}[variant]
