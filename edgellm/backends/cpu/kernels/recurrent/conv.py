"""Convolution along a conversation, column by column: its newest inputs lie in its state, oldest first."""

from __future__ import annotations

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.ops.recurrent import CONV
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load, store, fma = isa("load_i64 load_f32x8 store_f32x8 fma_f32x8")
    load_f32, store_f32, splat, first = isa("load_f32 store_f32 splat_f32x8 first_f32x8")
    arguments = CONV.reader(isa, "step x x_stride out out_stride weights bias n size targets state_at segments")

    @inline
    def eight_columns(x, out, weights, bias, before, after, row_bytes, size, j):
        """Columns j to j + 7 of a token."""
        total = load(bias, j * 4) if bias else splat(0.0)
        for tap in range(size - 1):
            at = tap * row_bytes + j * 4
            held = load(before, at)
            if tap:
                store(after, at - row_bytes, held)
            total = fma(held, load(weights, at), total)
        at = (size - 1) * row_bytes + j * 4
        newest = load(x, j * 4)
        store(after, at - row_bytes, newest)
        store(out, j * 4, fma(newest, load(weights, at), total))

    @inline
    def column(x, out, weights, bias, before, after, row_bytes, size, j):
        """The same for one column, by vectors too, so that a value never depends on its place."""
        total = splat(load_f32(bias, j * 4)) if bias else splat(0.0)
        for tap in range(size - 1):
            at = tap * row_bytes + j * 4
            held = load_f32(before, at)
            if tap:
                store_f32(after, at - row_bytes, held)
            total = fma(splat(held), splat(load_f32(weights, at)), total)
        at = (size - 1) * row_bytes + j * 4
        newest = load_f32(x, j * 4)
        store_f32(after, at - row_bytes, newest)
        store_f32(out, j * 4, first(fma(splat(newest), splat(load_f32(weights, at)), total)))

    def conv(op, ith, nth):
        step, x, x_stride, out, out_stride, weights, bias, n, size, targets, state_at, segments = arguments(op)
        first_column, end = first_item(1, n, ith, nth), first_item(1, n, ith + 1, nth)
        for segment in range(load_i64(step, abi.N_SEGMENTS * 8)):
            row = load_i64(segments, segment * 16)
            for token in range(row, row + load_i64(segments, segment * 16 + 8)):
                before = load_i64(targets, token * 16) + state_at
                after = load_i64(targets, token * 16 + 8) + state_at
                source, target, j = x + token * x_stride, out + token * out_stride, first_column
                while j + 8 <= end:
                    eight_columns(source, target, weights, bias, before, after, n * 4, size, j)
                    j += 8
                while j < end:
                    column(source, target, weights, bias, before, after, n * 4, size, j)
                    j += 1

    return conv
