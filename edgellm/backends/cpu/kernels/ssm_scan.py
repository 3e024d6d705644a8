"""Selective state spaces: the state of a column decays and takes the column's input; variants by what decays alike.

"columns": every number of a state decays in its own way (Mamba); "heads": those of some columns decay alike (Mamba 2). Threads
share columns; tokens of a segment follow each other.
"""
from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels import _softplus
from edgellm.backends.cpu.kernels._inline import inline
from edgellm.backends.cpu.kernels._partition import first_item
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.words import SSM_SCAN

BLOCK = 32                                       # columns whose states stay in the cache while the tokens pass


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_f32, store_f32, load, store = isa.load_i64, isa.load_f32, isa.store_f32, isa.load_f32x8, isa.store_f32x8
    splat, mul, fma, exp = isa.splat_f32x8, isa.mul_f32x8, isa.fma_f32x8, isa.exp_f32x8
    first, hsum, zero, softplus = isa.first_f32x8, isa.hsum_f32x8, isa.zero_f32x8, _softplus.build(isa)
    arguments = SSM_SCAN.reader(isa, "step x x_stride dt dt_stride b b_stride c c_stride out out_stride a d bias heads n d_state "
                                     "groups targets state_at segments")

    @inline
    def four_columns(before, after, x, out, at, b, c, d_state, size, decay, skip):
        """Four of a head: each as it would be alone."""
        v0, v1, v2, v3 = load_f32(x, 0), load_f32(x, 4), load_f32(x, 8), load_f32(x, 12)
        t0, t1, t2, t3 = mul(size, splat(v0)), mul(size, splat(v1)), mul(size, splat(v2)), mul(size, splat(v3))
        y0, y1, y2, y3 = zero(), zero(), zero(), zero()
        at1, at2, at3 = at + d_state * 4, at + d_state * 8, at + d_state * 12
        for i in range(0, d_state * 4, 32):
            key, query = load(b, i), load(c, i)
            s0, s1 = fma(t0, key, mul(load(before, at + i), decay)), fma(t1, key, mul(load(before, at1 + i), decay))
            s2, s3 = fma(t2, key, mul(load(before, at2 + i), decay)), fma(t3, key, mul(load(before, at3 + i), decay))
            store(after, at + i, s0)
            store(after, at1 + i, s1)
            store(after, at2 + i, s2)
            store(after, at3 + i, s3)
            y0, y1, y2, y3 = fma(s0, query, y0), fma(s1, query, y1), fma(s2, query, y2), fma(s3, query, y3)
        store_f32(out, 0, hsum(y0) + skip * v0)
        store_f32(out, 4, hsum(y1) + skip * v1)
        store_f32(out, 8, hsum(y2) + skip * v2)
        store_f32(out, 12, hsum(y3) + skip * v3)

    def by_head(op, ith, nth):
        (step, x, x_stride, dt, dt_stride, b, b_stride, c, c_stride, out, out_stride, a, d, bias, heads, n, d_state, groups,
         targets, state_at, segments) = arguments(op)
        end_column, per_head, per_group = first_item(1, n, ith + 1, nth), n // heads, heads // groups
        start = first_item(1, n, ith, nth)
        while start < end_column:                # to the end of a head, or BLOCK columns
            head = start // per_head
            end, group = min((head + 1) * per_head, start + BLOCK, end_column), head // per_group * d_state * 4
            rate, skip, shift = splat(load_f32(a, head * 4)), load_f32(d, head * 4), load_f32(bias, head * 4)
            for segment in range(load_i64(step, abi.N_SEGMENTS * 8)):
                row = load_i64(segments, segment * 16)
                for token in range(row, row + load_i64(segments, segment * 16 + 8)):
                    before, after = load_i64(targets, token * 16) + state_at, load_i64(targets, token * 16 + 8) + state_at
                    size = splat(first(softplus(splat(load_f32(dt + token * dt_stride, head * 4) + shift))))
                    decay, column = splat(first(exp(mul(size, rate)))), start
                    source, target = x + token * x_stride, out + token * out_stride
                    key, query = b + token * b_stride + group, c + token * c_stride + group
                    while column + 4 <= end:
                        four_columns(before, after, source + column * 4, target + column * 4, column * d_state * 4, key, query,
                                     d_state, size, decay, skip)
                        column += 4
                    while column < end:
                        value, at = load_f32(source, column * 4), column * d_state * 4
                        taken, total = mul(size, splat(value)), zero()
                        for i in range(0, d_state * 4, 32):
                            s = fma(taken, load(key, i), mul(load(before, at + i), decay))
                            store(after, at + i, s)
                            total = fma(s, load(query, i), total)
                        store_f32(target, column * 4, hsum(total) + skip * value)
                        column += 1
            start = end

    @inline
    def sizes(dt, out, start, end):
        """Steps of columns start..end; each as it would be alone."""
        column = start
        while column + 8 <= end:
            store(out, column * 4, softplus(load(dt, column * 4)))
            column += 8
        while column < end:
            store_f32(out, column * 4, first(softplus(splat(load_f32(dt, column * 4)))))
            column += 1

    def by_column(op, ith, nth):
        (step, x, x_stride, dt, dt_stride, b, b_stride, c, c_stride, out, out_stride, a, d, _, _, n, d_state, groups, targets,
         state_at, segments) = arguments(op)
        end_column = first_item(1, n, ith + 1, nth)
        for start in range(first_item(1, n, ith, nth), end_column, BLOCK):
            end = min(start + BLOCK, end_column)
            for segment in range(load_i64(step, abi.N_SEGMENTS * 8)):
                row = load_i64(segments, segment * 16)
                for token in range(row, row + load_i64(segments, segment * 16 + 8)):
                    before, after = load_i64(targets, token * 16) + state_at, load_i64(targets, token * 16 + 8) + state_at
                    sizes(dt + token * dt_stride, out + token * out_stride, start, end)         # where the results come afterwards
                    for column in range(start, end):
                        size = splat(load_f32(out + token * out_stride, column * 4))
                        value = load_f32(x + token * x_stride, column * 4)
                        taken, total, at = mul(size, splat(value)), zero(), column * d_state * 4
                        group = column // (n // groups) * d_state * 4
                        for i in range(0, d_state * 4, 32):
                            decay = exp(mul(size, load(a, at + i)))
                            s = fma(taken, load(b + token * b_stride, group + i), mul(load(before, at + i), decay))
                            store(after, at + i, s)
                            total = fma(s, load(c + token * c_stride, group + i), total)
                        store_f32(out + token * out_stride, column * 4, hsum(total) + load_f32(d, column * 4) * value)

    return by_column if variant == "columns" else by_head
