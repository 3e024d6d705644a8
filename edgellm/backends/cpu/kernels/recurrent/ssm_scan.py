"""Selective state spaces: the state of a column decays and takes the column's input; variants by what decays alike.

"columns": every number of a state decays in its own way (Mamba); "heads": those of some columns decay alike (Mamba 2). Columns go
in blocks, whose states lie together: a row of the block's columns for each number of a state. Threads share blocks; tokens follow
each other.
"""

from __future__ import annotations

import math
from typing import Any  # what an IR value is to the type checker

import numpy as np
from numba import types

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.recurrent import past_caches, ssm_blocks
from edgellm.backends.cpu.kernels.recurrent.decayed import ONE, split, stack
from edgellm.backends.cpu.kernels.recurrent.exp2 import exp2_of, side_by_side
from edgellm.backends.cpu.kernels.softplus import softplus_of
from edgellm.backends.cpu.ops.recurrent import OF_COLUMNS, OF_HEADS, SSM_SCAN
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, F32X8
from edgellm.backends.cpu.simd.generic import V8F, Generic

LOG2_E = np.float32(math.log2(math.e))


def build(variant: str, isa: Isa) -> KernelFunction:
    return _by_column(isa) if variant == "columns" else _by_head(isa)


def _by_column(isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32, load, store = isa("load_i64 load_f32 store_f32 load_f32x8 store_f32x8")
    splat, mul, fma, hsum, zero = isa("splat_f32x8 mul_f32x8 fma_f32x8 hsum_f32x8 zero_f32x8")
    softplus, exp2, table, prefetch = softplus_of(isa), exp2_of(isa), stack(isa, 8 * OF_COLUMNS), isa.prefetch
    one, two = (
        isa.make(
            f"numbers_{n}", types.UniTuple(F32X8, 2), (types.int64,) * 5 + (F32X8,) * 6, lambda e, *args, n=n: _numbers(e, n, *args)
        )
        for n in (1, 2)
    )
    arguments = SSM_SCAN.reader(
        isa, "step x x_stride dt dt_stride b b_stride c c_stride out out_stride a d n d_state groups targets state_at"
    )

    @inline
    def eight_steps(dt, dt_stride, x, x_stride, out, out_stride, n, steps):
        """Steps of a block for `n` tokens, up to eight; beside it what else these tokens touch comes into the cache."""
        for i in range(n):
            store(steps, i * 64, softplus(load(dt, i * dt_stride)))
            store(steps, i * 64 + 32, softplus(load(dt, i * dt_stride + 32)))
            prefetch(x, i * x_stride)
            prefetch(out, i * out_stride)

    @inline
    def sixteen(before, after, x, steps, b, c, out, a, d, d_state):
        size0, size1 = load(steps, 0), load(steps, 32)
        v0, v1 = load(x, 0), load(x, 32)
        t0, t1, y0, y1 = mul(size0, v0), mul(size1, v1), zero(), zero()
        for i in range(0, d_state // 2 * 2, 2):
            at = i * 64
            y0, y1 = two(before + at, after + at, a + at, b + i * 4, c + i * 4, size0, size1, t0, t1, y0, y1)
        if d_state % 2:
            i, at = d_state - 1, (d_state - 1) * 64
            y0, y1 = one(before + at, after + at, a + at, b + i * 4, c + i * 4, size0, size1, t0, t1, y0, y1)
        store(out, 0, fma(load(d, 0), v0, y0))
        store(out, 32, fma(load(d, 32), v1, y1))

    @inline
    def single(before, after, x, dt, b, c, out, a, d, d_state):
        size, value, total = softplus(splat(load_f32(dt, 0))), load_f32(x, 0), zero()
        taken = mul(size, splat(value))
        for i in range(0, d_state * 4, 32):
            s = fma(taken, load(b, i), mul(load(before, i), exp2(mul(size, load(a, i)))))
            store(after, i, s)
            total = fma(s, load(c, i), total)
        store_f32(out, 0, hsum(total) + load_f32(d, 0) * value)

    def by_column(op, ith, nth):
        (
            step,
            x,
            x_stride,
            dt,
            dt_stride,
            b,
            b_stride,
            c,
            c_stride,
            out,
            out_stride,
            a,
            d,
            n,
            d_state,
            groups,
            targets,
            state_at,
        ) = arguments(op)
        of_group, tokens, steps = n // groups, load_i64(step, abi.N_TOKENS * 8), table()
        wide, pieces = of_group // OF_COLUMNS, of_group // OF_COLUMNS + of_group % OF_COLUMNS
        for item in range(first_item(1, groups * pieces, ith, nth), first_item(1, groups * pieces, ith + 1, nth)):
            group, piece = item // pieces, item % pieces
            j = (group * of_group + (piece * OF_COLUMNS if piece < wide else of_group - pieces + piece)) * 4
            state, of_b = state_at + j * d_state, b + group * d_state * 4
            for token in range(tokens):
                before, after = load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state
                source, sizes, target = x + token * x_stride + j, dt + token * dt_stride + j, out + token * out_stride + j
                keys, queries = of_b + token * b_stride, of_b - b + c + token * c_stride
                if piece < wide:
                    if token % 8 == 0:
                        eight_steps(sizes, dt_stride, source, x_stride, target, out_stride, min(8, tokens - token), steps)
                    sixteen(before, after, source, steps + token % 8 * 64, keys, queries, target, a + j * d_state, d + j, d_state)
                else:
                    single(before, after, source, sizes, keys, queries, target, a + j * d_state, d + j, d_state)

    return by_column


def _numbers(
    e: Generic, n: int, before: Any, after: Any, a: Any, b: Any, c: Any, size0: Any, size1: Any, t0: Any, t1: Any, y0: Any, y1: Any
) -> list[Any]:
    """The next `n` numbers of the states of sixteen columns: they decay and take their input; the sums of what is read of them.

    As IR, for operations stay in this order: decays side by side.
    """
    sums, halves = [y0, y1], [(number, half) for number in range(n) for half in range(2)]
    decays = side_by_side(e, *(e.b.fmul((size0, size1)[half], e.load(V8F, a, 64 * number + 32 * half)) for number, half in halves))
    for (number, half), decay in zip(halves, decays, strict=True):
        key, query = (e.splat(e.load(F32, each, 4 * number)) for each in (b, c))
        s = e.fma((t0, t1)[half], key, e.b.fmul(e.load(V8F, before, 64 * number + 32 * half), decay))
        e.store(s, after, 64 * number + 32 * half)
        sums[half] = e.fma(s, query, sums[half])
    return sums


def _by_head(isa: Isa) -> KernelFunction:
    """A block's states have a factor of their own; see decayed.py."""
    load_i64, load_f32, store_f32, load, store = isa("load_i64 load_f32 store_f32 load_f32x8 store_f32x8")
    splat, mul = isa("splat_f32x8 mul_f32x8")
    softplus, exp2, table = softplus_of(isa), exp2_of(isa), stack(isa, 17)
    one_token, two_tokens = ssm_blocks.one_token(isa), ssm_blocks.two_tokens(isa, decays=False)
    two_that_decay, stored = ssm_blocks.two_tokens(isa, decays=True), past_caches.stored(isa)
    arguments = SSM_SCAN.reader(
        isa, "step x x_stride dt dt_stride b b_stride c c_stride out out_stride a d bias heads n d_state groups targets state_at"
    )

    @inline
    def eight_steps(dt, dt_stride, shift, rate, token, tokens, steps):
        """Steps of eight tokens, then their decays."""
        for i in range(8):
            store_f32(steps, i * 4, load_f32(dt, min(token + i, tokens - 1) * dt_stride) + shift)
        sizes = softplus(load(steps, 0))
        store(steps, 0, sizes)
        store(steps, 32, exp2(mul(sizes, splat(rate))))

    def by_head(op, ith, nth):
        (
            step,
            x,
            x_stride,
            dt,
            dt_stride,
            b,
            b_stride,
            c,
            c_stride,
            out,
            out_stride,
            a,
            d,
            bias,
            heads,
            n,
            d_state,
            groups,
            targets,
            state_at,
        ) = arguments(op)
        of_head, tokens, steps = n // heads, load_i64(step, abi.N_TOKENS * 8), table()
        wide, eights = of_head // OF_HEADS, of_head % OF_HEADS // 8
        pieces = wide + eights + of_head % 8
        for item in range(first_item(1, heads * pieces, ith, nth), first_item(1, heads * pieces, ith + 1, nth)):
            head, piece = item // pieces, item % pieces
            width = OF_HEADS if piece < wide else 8 if piece < wide + eights else 1
            column = piece * OF_HEADS if width > 8 else (wide * 3 + piece) * 8 if width == 8 else of_head - pieces + piece
            j, group = (head * of_head + column) * 4, head // (heads // groups) * d_state * 4
            state, room = state_at + j * (d_state + 1), d_state * width * 4
            rate, skip, shift = load_f32(a, head * 4) * LOG2_E, load_f32(d, head * 4), load_f32(bias, head * 4)
            token = 0
            while token < tokens:
                if token % 8 == 0:
                    eight_steps(dt + head * 4, dt_stride, shift, rate, token, tokens, steps)
                number = steps + token % 8 * 4
                before, after = load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state
                by, factor = split(load_f32(before, room) * load_f32(number, 32))
                source, target = x + token * x_stride + j, out + token * out_stride + j
                keys, queries, taken = b + token * b_stride + group, c + token * c_stride + group, load_f32(number, 0) / factor
                if (
                    width == OF_HEADS
                    and token % 8 < 7
                    and token + 1 < tokens
                    and load_i64(targets, token * 16 + 16) + state == after == load_i64(targets, token * 16 + 24) + state
                ):
                    by1, later = split(factor * load_f32(number, 36))
                    taken1 = load_f32(number, 4) / later
                    if by == ONE and by1 == ONE:
                        two_tokens(
                            before,
                            after,
                            source,
                            x_stride,
                            keys,
                            b_stride,
                            queries,
                            c_stride,
                            target,
                            out_stride,
                            d_state,
                            by,
                            taken,
                            factor,
                            by1,
                            taken1,
                            later,
                            skip,
                        )
                    else:
                        two_that_decay(
                            before,
                            after,
                            source,
                            x_stride,
                            keys,
                            b_stride,
                            queries,
                            c_stride,
                            target,
                            out_stride,
                            d_state,
                            by,
                            taken,
                            factor,
                            by1,
                            taken1,
                            later,
                            skip,
                        )
                    token, factor = token + 2, later
                else:
                    one_token(width, before, after, source, keys, queries, target, d_state, by, taken, factor, skip, tokens == 1)
                    token += 1
                store_f32(after, room, factor)
        if tokens == 1:
            stored()

    return by_head
