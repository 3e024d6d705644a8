"""Updates of a block of a head's columns, for kernels/recurrent/ssm_scan.py.

`size`: a token's step, divided by the states' factor; `by`: what the states before it are multiplied with.
"""

from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.recurrent import vectors
from edgellm.backends.cpu.kernels.recurrent.past_caches import ALIGNMENT, store_past
from edgellm.backends.cpu.ops.recurrent import OF_HEADS
from edgellm.backends.cpu.simd import Isa


def one_token(isa: Isa) -> Any:
    """For blocks of `width` columns: 32, eight or one. `last`: whether states are not read again in this step."""
    load_f32, store_f32, load, store = isa("load_f32 store_f32 load_f32x8 store_f32x8")
    splat, mul, fma, hsum, zero = isa("splat_f32x8 mul_f32x8 fma_f32x8 hsum_f32x8 zero_f32x8")
    thirty_two, last_thirty_two = _thirty_two(isa, store), _thirty_two(isa, store_past(isa))

    @inline
    def eight(before, after, x, b, c, out, d_state, by, size, factor, skip):
        value, y = load(x, 0), zero()
        taken = mul(splat(size), value)
        for i in range(d_state):
            s = fma(taken, splat(load_f32(b, i * 4)), mul(load(before, i * 32), splat(by)))
            store(after, i * 32, s)
            y = fma(s, splat(load_f32(c, i * 4)), y)
        store(out, 0, fma(y, splat(factor), mul(splat(skip), value)))

    @inline
    def single(before, after, x, b, c, out, d_state, by, size, factor, skip):
        value, y = load_f32(x, 0), zero()
        taken = splat(size * value)
        for i in range(0, d_state * 4, 32):
            s = fma(taken, load(b, i), mul(load(before, i), splat(by)))
            store(after, i, s)
            y = fma(s, load(c, i), y)
        store_f32(out, 0, hsum(y) * factor + skip * value)

    @inline
    def block(width, before, after, x, b, c, out, d_state, by, size, factor, skip, last):
        if width == OF_HEADS and last and after % ALIGNMENT == 0:
            last_thirty_two(before, after, x, b, c, out, d_state, by, size, factor, skip)
        elif width == OF_HEADS:
            thirty_two(before, after, x, b, c, out, d_state, by, size, factor, skip)
        elif width == 8:
            eight(before, after, x, b, c, out, d_state, by, size, factor, skip)
        else:
            single(before, after, x, b, c, out, d_state, by, size, factor, skip)

    return block


def _thirty_two(isa: Isa, store_state: Any) -> Any:
    load_f32, load, store = isa("load_f32 load_f32x8 store_f32x8")
    splat, mul, fma, zero = isa("splat_f32x8 mul_f32x8 fma_f32x8 zero_f32x8")

    @inline
    def thirty_two(before, after, x, b, c, out, d_state, by, size, factor, skip):
        v0, v1, v2, v3 = load(x, 0), load(x, 32), load(x, 64), load(x, 96)
        t0, t1, t2, t3 = mul(splat(size), v0), mul(splat(size), v1), mul(splat(size), v2), mul(splat(size), v3)
        y0, y1, y2, y3, kept = zero(), zero(), zero(), zero(), splat(by)
        for i in range(d_state):
            key, query, at = splat(load_f32(b, i * 4)), splat(load_f32(c, i * 4)), i * 128
            s0, s1 = fma(t0, key, mul(load(before, at), kept)), fma(t1, key, mul(load(before, at + 32), kept))
            s2, s3 = fma(t2, key, mul(load(before, at + 64), kept)), fma(t3, key, mul(load(before, at + 96), kept))
            store_state(after, at, s0)
            store_state(after, at + 32, s1)
            store_state(after, at + 64, s2)
            store_state(after, at + 96, s3)
            y0, y1, y2, y3 = fma(s0, query, y0), fma(s1, query, y1), fma(s2, query, y2), fma(s3, query, y3)
        store(out, 0, fma(y0, splat(factor), mul(splat(skip), v0)))
        store(out, 32, fma(y1, splat(factor), mul(splat(skip), v1)))
        store(out, 64, fma(y2, splat(factor), mul(splat(skip), v2)))
        store(out, 96, fma(y3, splat(factor), mul(splat(skip), v3)))

    return thirty_two


def two_tokens(isa: Isa, decays: bool) -> Any:
    """For blocks of 32 columns: as one token after the other, but the states stay in registers between the two. Without `decays`
    both `by` are 1.
    """
    load_f32, wide = isa.load_f32, vectors.of_lanes(isa, isa.level.lanes)
    load, store, splat, mul, fma, zero, size_of = wide.load, wide.store, wide.splat, wide.mul, wide.fma, wide.zero, wide.nbytes

    @inline
    def two_vectors(
        before, after, x, x_stride, b, b_stride, c, c_stride, out, out_stride, d_state, by, size, factor, by1, size1, factor1, skip
    ):
        t0, t1 = mul(splat(size), load(x, 0)), mul(splat(size), load(x, size_of))
        u0, u1 = mul(splat(size1), load(x, x_stride)), mul(splat(size1), load(x, x_stride + size_of))
        y0, y1, z0, z1, kept, kept1 = zero(), zero(), zero(), zero(), splat(by), splat(by1)
        for i in range(d_state):
            at, key, query = i * OF_HEADS * 4, splat(load_f32(b, i * 4)), splat(load_f32(c, i * 4))
            s0, s1 = load(before, at), load(before, at + size_of)
            if decays:
                s0, s1 = mul(s0, kept), mul(s1, kept)
            s0, s1 = fma(t0, key, s0), fma(t1, key, s1)
            y0, y1 = fma(s0, query, y0), fma(s1, query, y1)
            key, query = splat(load_f32(b, i * 4 + b_stride)), splat(load_f32(c, i * 4 + c_stride))
            if decays:
                s0, s1 = mul(s0, kept1), mul(s1, kept1)
            s0, s1 = fma(u0, key, s0), fma(u1, key, s1)
            store(after, at, s0)
            store(after, at + size_of, s1)
            z0, z1 = fma(s0, query, z0), fma(s1, query, z1)
        store(out, 0, fma(y0, splat(factor), mul(splat(skip), load(x, 0))))
        store(out, size_of, fma(y1, splat(factor), mul(splat(skip), load(x, size_of))))
        store(out, out_stride, fma(z0, splat(factor1), mul(splat(skip), load(x, x_stride))))
        store(out, out_stride + size_of, fma(z1, splat(factor1), mul(splat(skip), load(x, x_stride + size_of))))

    @inline
    def block(
        before, after, x, x_stride, b, b_stride, c, c_stride, out, out_stride, d_state, by, size, factor, by1, size1, factor1, skip
    ):
        for part in range(0, OF_HEADS * 4, 2 * size_of):
            two_vectors(
                before + part,
                after + part,
                x + part,
                x_stride,
                b,
                b_stride,
                c,
                c_stride,
                out + part,
                out_stride,
                d_state,
                by,
                size,
                factor,
                by1,
                size1,
                factor1,
                skip,
            )

    return block
