"""RMS norm and layer norm over rows, or over equal groups of a row (the per-head norms of q and k)."""

from __future__ import annotations

import math

import numpy as np

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.rowwise.sums import row_sums
from edgellm.backends.cpu.ops.dense import NORM
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    load, store, add, mul, sub, splat = isa("load_f32x8 store_f32x8 add_f32x8 mul_f32x8 sub_f32x8 splat_f32x8")
    total, squares = row_sums(isa)

    @inline
    def write(x, out, n, w, bias, centre, factor):
        """out = (x - centre) * factor * w + bias; w and bias may be 0, for none"""
        m, f = splat(centre), splat(factor)
        j = 0
        while j + 8 <= n:
            y = mul(sub(load(x, j * 4), m), f)
            if w != 0:
                y = mul(y, load(w, j * 4))
            if bias != 0:
                y = add(y, load(bias, j * 4))
            store(out, j * 4, y)
            j += 8
        while j < n:
            t = (load_f32(x, j * 4) - centre) * factor
            if w != 0:
                t *= load_f32(w, j * 4)
            if bias != 0:
                t += load_f32(bias, j * 4)
            store_f32(out, j * 4, t)
            j += 1

    centred, eps_at = variant == "layer_norm", NORM.at("eps")
    arguments = NORM.reader(isa, "step x x_stride out out_stride scale scale_stride bias n groups count")

    def norm(op, ith, nth):
        step, x, x_stride, out, out_stride, w, w_stride, bias, n, groups, count = arguments(op)
        rows, eps = load_i64(step, count * 8), load_f32(op, eps_at)
        for item in range(first_item(rows, groups, ith, nth), first_item(rows, groups, ith + 1, nth)):
            row, group = item // groups, item % groups
            source = x + row * x_stride + group * n * 4
            centre = np.float32(0)
            if centred:
                centre = np.float32(total(source, n) / np.float32(n))
            variance = np.float32(squares(source, n, centre) / np.float32(n))
            factor = np.float32(np.float32(1) / np.float32(math.sqrt(variance + eps)))
            own = group * w_stride
            write(source, out + row * out_stride + group * n * 4, n, w + own, bias + own if bias != 0 else 0, centre, factor)

    return norm
