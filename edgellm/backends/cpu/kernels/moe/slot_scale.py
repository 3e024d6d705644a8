"""The parts of rows that belong to a token's experts, each times the weight of its expert."""

from __future__ import annotations

from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.rowwise.rows import scaled_of
from edgellm.backends.cpu.ops.moe import SLOT_SCALE
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32, load_f32 = isa("load_i64 load_i32 load_f32")
    scaled = scaled_of(isa)
    arguments = SLOT_SCALE.reader(isa, "step x x_stride weights weights_stride chosen chosen_stride out out_stride n slots count")

    def rows(op, ith, nth):
        step, x, x_stride, weights, weights_stride, chosen, chosen_stride, out, out_stride, n, slots, count = arguments(op)
        tokens, columns = load_i64(step, count * 8), n * slots
        at, last = first_item(tokens, columns, ith, nth), first_item(tokens, columns, ith + 1, nth)
        while at < last:
            row, j = at // columns, at % columns
            slot = j // n
            end = min((slot + 1) * n, j + last - at)
            at += end - j
            factor = load_f32(weights + row * weights_stride, load_i32(chosen + row * chosen_stride, slot * 4) * 4)
            scaled(x + row * x_stride, out + row * out_stride, j, end, factor)

    return {"rows": rows}[variant]
