"""Rows mixed with the row before them, which lies in the state; threads share columns, tokens of a segment follow each other."""

from __future__ import annotations

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.ops.rwkv import TOKEN_SHIFT
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load, store, fma, sub = isa("load_i64 load_f32x8 store_f32x8 fma_f32x8 sub_f32x8")
    load_f32, store_f32, splat, first, add = isa("load_f32 store_f32 splat_f32x8 first_f32x8 add_f32x8")
    arguments = TOKEN_SHIFT.reader(isa, "step x x_stride more more_stride out out_stride mix n parts targets state_at segments")

    @inline
    def eight(x, more, out, mix, before, after, n, parts, j):
        """Columns j to j + 7 of a token, in all parts."""
        newest = load(x, j * 4)
        change = sub(load(before, j * 4), newest)
        store(after, j * 4, newest)
        for part in range(parts):
            at = (part * n + j) * 4
            factor = load(mix, at)
            if more != 0:
                factor = add(factor, load(more, at))
            store(out, at, fma(change, factor, newest))

    @inline
    def one(x, more, out, mix, before, after, n, parts, j):
        """The same for one column, by vectors too, so that a value never depends on its place."""
        newest = splat(load_f32(x, j * 4))
        change = sub(splat(load_f32(before, j * 4)), newest)
        store_f32(after, j * 4, load_f32(x, j * 4))
        for part in range(parts):
            at = (part * n + j) * 4
            factor = load_f32(mix, at)
            if more != 0:
                factor += load_f32(more, at)
            store_f32(out, at, first(fma(change, splat(factor), newest)))

    def rows(op, ith, nth):
        step, x, x_stride, more, more_stride, out, out_stride, mix, n, parts, targets, state_at, segments = arguments(op)
        first_column, end = first_item(1, n, ith, nth), first_item(1, n, ith + 1, nth)
        for segment in range(load_i64(step, abi.N_SEGMENTS * 8)):
            row = load_i64(segments, segment * 16)
            for token in range(row, row + load_i64(segments, segment * 16 + 8)):
                before = load_i64(targets, token * 16) + state_at
                after = load_i64(targets, token * 16 + 8) + state_at
                source, target, j = x + token * x_stride, out + token * out_stride, first_column
                own = more + token * more_stride
                while j + 8 <= end:
                    eight(source, own, target, mix, before, after, n, parts, j)
                    j += 8
                while j < end:
                    one(source, own, target, mix, before, after, n, parts, j)
                    j += 1

    return {"rows": rows}[variant]
