"""The parts of rows that belong to a token's experts, each times the weight of its expert."""

from __future__ import annotations

from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.ops.moe import SLOT_SCALE
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32, load_f32, store_f32 = isa("load_i64 load_i32 load_f32 store_f32")
    load, store, mul, splat, extract = isa("load_f32x8 store_f32x8 mul_f32x8 splat_f32x8 first_f32x8")
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
            factor = splat(load_f32(weights + row * weights_stride, load_i32(chosen + row * chosen_stride, slot * 4) * 4))
            source, target = x + row * x_stride, out + row * out_stride
            while j + 8 <= end:
                store(target, j * 4, mul(load(source, j * 4), factor))
                j += 8
            while j < end:
                store_f32(target, j * 4, extract(mul(splat(load_f32(source, j * 4)), factor)))
                j += 1

    return {"rows": rows}[variant]
