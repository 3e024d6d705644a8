"""Pools the rows of each segment: their mean, the first or the last of them."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.ops.rows import POOL
from edgellm.backends.cpu.simd import Isa, KernelFunction

COUNT = abi.N_SEGMENTS * 8


def build(variant: str, isa: Isa) -> KernelFunction:
    """The rows of a segment are added up one after the other, so that a mean does not depend on what else is in the step."""
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    load, store, add, mul, splat, zero = isa("load_f32x8 store_f32x8 add_f32x8 mul_f32x8 splat_f32x8 zero_f32x8")
    arguments = POOL.reader(isa, "step x x_stride out out_stride segments n")
    mean, last = variant == "mean", variant == "last"

    def pool(op, ith, nth):
        step, x, x_stride, out, out_stride, segments, n = arguments(op)
        count = load_i64(step, COUNT)
        at, end = first_item(count, n, ith, nth), first_item(count, n, ith + 1, nth)
        while at < end:
            segment, j = at // n, at % n
            stop = min(n, j + end - at)
            at += stop - j
            rows, target = load_i64(segments, segment * 16 + 8), out + segment * out_stride
            source = x + (load_i64(segments, segment * 16) + (rows - 1 if last else 0)) * x_stride
            used = rows if mean else 1
            part = np.float32(1) / np.float32(used)
            while j + 8 <= stop:
                total = zero()
                for row in range(used):
                    total = add(total, load(source + row * x_stride, j * 4))
                store(target, j * 4, mul(total, splat(part)))
                j += 8
            while j < stop:
                one = np.float32(0)
                for row in range(used):
                    one += load_f32(source + row * x_stride, j * 4)
                store_f32(target, j * 4, one * part)
                j += 1

    return pool
