"""Several rows per token: their weighted sums, rows of a given size, and the largest values of a row (Gemma 3n)."""

from __future__ import annotations

import math

import numpy as np

from edgellm.backends.cpu.kernels.rowwise.rows import scaled_of
from edgellm.backends.cpu.kernels.rowwise.sums import row_sums
from edgellm.backends.cpu.record import row_signature
from edgellm.backends.cpu.simd import Isa, KernelFunction

MIX = row_signature(3, "parts", "offset", "first")
RESCALE = row_signature(2, "groups", "floor")
SPARSE_RELU = row_signature(1, "deviations")
ZERO, ONE = np.float32(0.0), np.float32(1.0)


def build(variant: str, isa: Isa) -> KernelFunction:
    return {"mix": _mix, "rescale": _rescale, "sparse_relu": _sparse_relu}[variant](isa)


def _mix(isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32, load, store = isa("load_i64 load_f32 store_f32 load_f32x8 store_f32x8")
    fma, splat = isa("fma_f32x8 splat_f32x8")
    arguments = MIX.reader(isa, "step x0 x0_stride x1 x1_stride n1 x2 x2_stride out out_stride n parts first count")
    offset_at = MIX.at("offset")

    def mix(op, ith, nth):
        step, base, base_stride, x, x_stride, n_x, factors, factors_stride, out, out_stride, n_all, parts, first, count = arguments(
            op
        )
        n, added = n_all // parts, n_x * parts // n_all
        rows, offset = load_i64(step, count * 8), load_f32(op, offset_at)
        for row in range(rows * ith // nth, rows * (ith + 1) // nth):
            pieces, mine = x + row * x_stride, factors + row * factors_stride
            for part in range(parts):
                source, target = base + row * base_stride + part * n * 4, out + row * out_stride + part * n * 4
                few = added if part >= first else 0
                j = 0
                while j + 8 <= n:
                    y = load(source, j * 4)
                    for k in range(few):
                        factor = load_f32(mine, (part * added + k) * 4) + offset if factors != 0 else ONE
                        y = fma(load(pieces, (k * n + j) * 4), splat(factor), y)
                    store(target, j * 4, y)
                    j += 8
                while j < n:
                    z = load_f32(source, j * 4)
                    for k in range(few):
                        factor = load_f32(mine, (part * added + k) * 4) + offset if factors != 0 else ONE
                        z += load_f32(pieces, (k * n + j) * 4) * factor
                    store_f32(target, j * 4, z)
                    j += 1

    return mix


def _rescale(isa: Isa) -> KernelFunction:
    load_i64, load_f32 = isa("load_i64 load_f32")
    (_, squares), scaled = row_sums(isa), scaled_of(isa)
    arguments = RESCALE.reader(isa, "step x0 x0_stride x1 x1_stride n1 out out_stride n groups count")
    floor_at = RESCALE.at("floor")

    def rescale(op, ith, nth):
        step, x, x_stride, like, like_stride, n_like, out, out_stride, n_all, groups, count = arguments(op)
        n = n_all // groups
        rows, floor = load_i64(step, count * 8), load_f32(op, floor_at)
        for row in range(rows * ith // nth, rows * (ith + 1) // nth):
            wanted = np.float32(squares(like + row * like_stride, n_like, ZERO) / np.float32(n_like))
            for group in range(groups):
                source, target = x + row * x_stride + group * n * 4, out + row * out_stride + group * n * 4
                own = max(np.float32(squares(source, n, ZERO) / np.float32(n)), floor)
                scaled(source, target, 0, n, np.float32(math.sqrt(np.float32(wanted / own))))

    return rescale


def _sparse_relu(isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32, load, store = isa("load_i64 load_f32 store_f32 load_f32x8 store_f32x8")
    sub, larger, splat = isa("sub_f32x8 larger_f32x8 splat_f32x8")
    total, squares = row_sums(isa)
    arguments = SPARSE_RELU.reader(isa, "step x0 x0_stride out out_stride n count")
    deviations_at = SPARSE_RELU.at("deviations")

    def sparse_relu(op, ith, nth):
        step, x, x_stride, out, out_stride, n, count = arguments(op)
        rows, deviations = load_i64(step, count * 8), load_f32(op, deviations_at)
        for row in range(rows * ith // nth, rows * (ith + 1) // nth):
            source, target = x + row * x_stride, out + row * out_stride
            mean = np.float32(total(source, n) / np.float32(n))
            deviation = np.float32(math.sqrt(np.float32(squares(source, n, mean) / np.float32(n))))
            cutoff = np.float32(mean + deviation * deviations)
            j = 0
            while j + 8 <= n:
                store(target, j * 4, larger(splat(ZERO), sub(load(source, j * 4), splat(cutoff))))
                j += 8
            while j < n:
                above = np.float32(load_f32(source, j * 4) - cutoff)
                store_f32(target, j * 4, above if above > ZERO or above != above else ZERO)
                j += 1

    return sparse_relu
