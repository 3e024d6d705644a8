"""Selective state spaces: the state of a column decays and takes the column's input; variants by what decays alike.

"columns": every number of a state decays in its own way (Mamba); "heads": those of some columns decay alike (Mamba 2). Threads
share columns; tokens of a segment follow each other.
"""
from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels import _softplus
from edgellm.backends.cpu.kernels._partition import first_item
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.words import SSM_SCAN

BLOCK = 32                                       # columns whose states stay in the cache while the tokens pass


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_f32, store_f32, load, store = isa.load_i64, isa.load_f32, isa.store_f32, isa.load_f32x8, isa.store_f32x8
    splat, mul, fma, exp = isa.splat_f32x8, isa.mul_f32x8, isa.fma_f32x8, isa.exp_f32x8
    first, hsum, zero, softplus = isa.first_f32x8, isa.hsum_f32x8, isa.zero_f32x8, _softplus.build(isa)
    by_column = variant == "columns"
    arguments = SSM_SCAN.reader(isa, "step x x_stride dt dt_stride b b_stride c c_stride out out_stride a d bias heads n d_state "
                                     "groups targets state_at segments")

    def ssm_scan(op, ith, nth):
        (step, x, x_stride, dt, dt_stride, b, b_stride, c, c_stride, out, out_stride, a, d, bias, heads, n, d_state, groups,
         targets, state_at, segments) = arguments(op)
        end_column, per_head, per_group = first_item(1, n, ith + 1, nth), n // heads, heads // groups
        for start in range(first_item(1, n, ith, nth), end_column, BLOCK):
            for segment in range(load_i64(step, abi.N_SEGMENTS * 8)):
                row = load_i64(segments, segment * 16)
                for token in range(row, row + load_i64(segments, segment * 16 + 8)):
                    before, after = load_i64(targets, token * 16) + state_at, load_i64(targets, token * 16 + 8) + state_at
                    last, size, decay = -1, zero(), zero()
                    for column in range(start, min(start + BLOCK, end_column)):
                        head = column // per_head
                        if head != last:
                            raw = load_f32(dt + token * dt_stride, head * 4)
                            size = splat(first(softplus(splat(raw + load_f32(bias, head * 4) if bias else raw))))
                            if not by_column:
                                decay = splat(first(exp(mul(size, splat(load_f32(a, head * 4))))))
                            last = head
                        group, value = head // per_group * d_state * 4, load_f32(x + token * x_stride, column * 4)
                        taken, total, at = mul(size, splat(value)), zero(), column * d_state * 4
                        for i in range(0, d_state * 4, 32):
                            if by_column:
                                decay = exp(mul(size, load(a, at + i)))
                            s = fma(taken, load(b + token * b_stride, group + i), mul(load(before, at + i), decay))
                            store(after, at + i, s)
                            total = fma(s, load(c + token * c_stride, group + i), total)
                        store_f32(out + token * out_stride, column * 4, hsum(total) + load_f32(d, head * 4) * value)

    return ssm_scan
