"""Rows beside each other, of images or in time: convolutions of each channel for itself, and means over all of an image."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu.ops.vision import NEIGHBOURS
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.ops.neighbours import COUNT, NOWHERE

FAR, ROWS = np.float32(NOWHERE), COUNT * 4


def build(variant: str, isa: Isa) -> KernelFunction:
    return {"conv": _conv, "mean": _mean}[variant](isa)


def _conv(isa: Isa) -> KernelFunction:
    """Threads share rows; taps are added up in order, so that a row does not depend on its place."""
    load_i64, load_i32, load_f32, store_f32 = isa("load_i64 load_i32 load_f32 store_f32")
    load, store, add, mul, zero = isa("load_f32x8 store_f32x8 add_f32x8 mul_f32x8 zero_f32x8")
    arguments = NEIGHBOURS.reader(isa, "step beside beside_stride x x_stride out out_stride first taps n_taps n count")

    def conv(op, ith, nth):
        step, beside, beside_stride, x, x_stride, out, out_stride, first, taps, n_taps, n, count = arguments(op)
        rows = load_i64(step, count * 8)
        for row in range(rows * ith // nth, rows * (ith + 1) // nth):
            at = load_i32(first, row * 4) if first else row
            away, own, target = beside + at * beside_stride, x + at * x_stride, out + row * out_stride
            j = 0
            while j + 8 <= n:
                total = zero()
                for tap in range(n_taps):
                    rows_away = load_f32(away, tap * 4)
                    if rows_away < FAR:
                        total = add(total, mul(load(own + np.int64(rows_away) * x_stride, j * 4), load(taps, (tap * n + j) * 4)))
                store(target, j * 4, total)
                j += 8
            while j < n:
                one = np.float32(0)
                for tap in range(n_taps):
                    rows_away = load_f32(away, tap * 4)
                    if rows_away < FAR:
                        one += load_f32(own + np.int64(rows_away) * x_stride, j * 4) * load_f32(taps, (tap * n + j) * 4)
                store_f32(target, j * 4, one)
                j += 1

    return conv


def _mean(isa: Isa) -> KernelFunction:
    """Threads share columns; the rows of an image are added up one after the other."""
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    arguments = NEIGHBOURS.reader(isa, "step beside beside_stride x x_stride out out_stride n count")

    def mean(op, ith, nth):
        step, beside, beside_stride, x, x_stride, out, out_stride, n, count = arguments(op)
        rows, begin, end = load_i64(step, count * 8), n * ith // nth, n * (ith + 1) // nth
        row = 0
        while row < rows:
            many = np.int64(load_f32(beside + row * beside_stride, ROWS))
            if many == 0:
                for j in range(begin, end):
                    store_f32(out + row * out_stride, j * 4, np.float32(0))
                row += 1
                continue
            part = np.float32(1) / np.float32(many)
            for j in range(begin, end):
                total = np.float32(0)
                for other in range(many):
                    total += load_f32(x + (row + other) * x_stride, j * 4)
                for other in range(many):
                    store_f32(out + (row + other) * out_stride, j * 4, total * part)
            row += many

    return mean
