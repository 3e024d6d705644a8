"""Attention over the slots of a ring, flash style: chunks of keys give partial sums in float32, which are merged in a fixed order.

All queries of one key/value head go together, so that keys and values are read once. A chunk's keys are taken eight at a time:
eight dot products become one vector, so that exp and the running maximum are vector operations. One token splits its chunks over
the threads; many tokens are split by token. The sums are the same in both cases, bit by bit.

A partial is, for r queries: r rows of head_dim_v floats (weighted values), then r maxima, then r sums, each padded to eight floats.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any  # what a Numba function is to the type checker

import numpy as np

from edgellm.backends.cpu.kernels._inline import inline, outline
from edgellm.backends.cpu.simd import Isa

LOWEST = np.float32(-3.0e38)                     # below any score, but finite: differences of maxima stay numbers


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    if variant == "merge":
        return _merge_kernel(isa)
    return _attention_kernel(variant, isa)


def _arguments(isa: Isa) -> Any:
    """The geometry that both kernels read from a record (see `ops.attention`)."""
    load_i64 = isa.load_i64

    @inline
    def arguments(op):
        n_heads, n_kv, dim_k, dim_v = load_i64(op, 80), load_i64(op, 88), load_i64(op, 96), load_i64(op, 104)
        slots, sinks = load_i64(op, 112), load_i64(op, 120)
        partials, thread_bytes = load_i64(op, 136), load_i64(op, 144)
        partial_bytes, chunk = load_i64(op, 152), load_i64(op, 160)
        return n_heads // n_kv, n_kv, dim_k, dim_v, slots, sinks, partials, thread_bytes, partial_bytes, chunk

    return arguments


def _merge(isa: Isa) -> Any:
    """out = sum of partials weighted by exp(their maximum - the greatest), over the sum of their weights."""
    load, store, fma, mul, splat, exp, zero = (isa.load_f32x8, isa.store_f32x8, isa.fma_f32x8, isa.mul_f32x8, isa.splat_f32x8,
                                               isa.exp_f32x8, isa.zero_f32x8)
    load_f32, store_f32, first = isa.load_f32, isa.store_f32, isa.first_f32x8

    @inline
    def merge(partials, n, partial_bytes, queries, dim, out):
        maxima = queries * dim * 4
        sums = maxima + queries * 32
        for r in range(queries):
            top = LOWEST
            for c in range(n):
                top = max(top, load_f32(partials, c * partial_bytes + maxima + r * 4))
            whole = np.float32(0)
            for c in range(n):
                weight = first(exp(splat(load_f32(partials, c * partial_bytes + maxima + r * 4) - top)))
                whole += weight * load_f32(partials, c * partial_bytes + sums + r * 4)
            j = 0
            while j < dim:
                total, rest = zero(), np.float32(0)
                for c in range(n):
                    part = partials + c * partial_bytes
                    weight = first(exp(splat(load_f32(part, maxima + r * 4) - top)))
                    if j + 8 <= dim:
                        total = fma(splat(weight), load(part, (r * dim + j) * 4), total)
                    else:
                        rest += weight * load_f32(part, (r * dim + j) * 4)
                if j + 8 <= dim:
                    store(out, (r * dim + j) * 4, mul(total, splat(np.float32(1) / whole)))
                    j += 8
                else:
                    store_f32(out, (r * dim + j) * 4, rest * (np.float32(1) / whole))
                    j += 1

    return merge


def _merge_kernel(isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_i32 = isa.load_i64, isa.load_i32
    arguments, merge = _arguments(isa), _merge(isa)

    def kernel(op, ith, nth):
        """Only a single token leaves partials behind for all threads."""
        if load_i64(load_i64(op, 8), 0) != 1:
            return
        queries, n_kv, _, dim_v, _, _, partials, thread_bytes, partial_bytes, chunk = arguments(op)
        spans, out = load_i64(op, 64), load_i64(op, 48)
        n = (load_i32(spans, 4) > 0) + (load_i32(spans, 12) + chunk - 1) // chunk
        for head in range(n_kv * ith // nth, n_kv * (ith + 1) // nth):
            merge(partials + head * thread_bytes, n, partial_bytes, queries, dim_v, out + head * queries * dim_v * 4)

    return kernel


def _dots(kv_type: str, isa: Isa) -> Any:
    """Scores of one query against keys first..first+7 (clamped to `last`): a vector of eight."""
    load, fma, zero, add = isa.load_f32x8, isa.fma_f32x8, isa.zero_f32x8, isa.add_f32x8
    load_key, load_one, size = {"f32": (isa.load_f32x8, isa.load_f32, 4), "f16": (isa.load_f16x8, isa.load_f16, 2)}[kv_type]
    load_f32, transpose_sum, pack = isa.load_f32, isa.sum8_f32x8, isa.pack_f32x8

    @inline
    def dots(q, keys, row_bytes, left, dim):
        """left: keys that exist from `keys` on; rows past them repeat the last, so that nothing outside is read."""
        k1, k2, k3 = keys + min(1, left - 1) * row_bytes, keys + min(2, left - 1) * row_bytes, keys + min(3, left - 1) * row_bytes
        k4, k5 = keys + min(4, left - 1) * row_bytes, keys + min(5, left - 1) * row_bytes
        k6, k7 = keys + min(6, left - 1) * row_bytes, keys + min(7, left - 1) * row_bytes
        a, b, c, d, e, f, g, h = zero(), zero(), zero(), zero(), zero(), zero(), zero(), zero()
        j = 0
        while j + 8 <= dim:
            x = load(q, j * 4)
            at = j * size
            a, b = fma(x, load_key(keys, at), a), fma(x, load_key(k1, at), b)
            c, d = fma(x, load_key(k2, at), c), fma(x, load_key(k3, at), d)
            e, f = fma(x, load_key(k4, at), e), fma(x, load_key(k5, at), f)
            g, h = fma(x, load_key(k6, at), g), fma(x, load_key(k7, at), h)
            j += 8
        scores = transpose_sum(a, b, c, d, e, f, g, h)
        if j < dim:
            a0, a1, a2, a3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            a4, a5, a6, a7 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            while j < dim:
                x1, at = load_f32(q, j * 4), j * size
                a0, a1 = a0 + x1 * load_one(keys, at), a1 + x1 * load_one(k1, at)
                a2, a3 = a2 + x1 * load_one(k2, at), a3 + x1 * load_one(k3, at)
                a4, a5 = a4 + x1 * load_one(k4, at), a5 + x1 * load_one(k5, at)
                a6, a7 = a6 + x1 * load_one(k6, at), a7 + x1 * load_one(k7, at)
                j += 1
            scores = add(scores, pack(a0, a1, a2, a3, a4, a5, a6, a7))
        return scores

    return dots


def _attention_kernel(kv_type: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_i32, load_f32, store_f32 = isa.load_i64, isa.load_i32, isa.load_f32, isa.store_f32
    load, store, fma, add, sub, mul, splat = (isa.load_f32x8, isa.store_f32x8, isa.fma_f32x8, isa.add_f32x8, isa.sub_f32x8,
                                              isa.mul_f32x8, isa.splat_f32x8)
    exp, hsum, hmax, keep_first, lane = isa.exp_f32x8, isa.hsum_f32x8, isa.hmax_f32x8, isa.keep_first_f32x8, isa.lane_f32x8
    load_value, load_one, size = {"f32": (isa.load_f32x8, isa.load_f32, 4), "f16": (isa.load_f16x8, isa.load_f16, 2)}[kv_type]
    dots, arguments, merge = _dots(kv_type, isa), _arguments(isa), _merge(isa)

    @inline
    def rescale(part, r, dim, factor):
        j = 0
        f = splat(factor)
        while j + 8 <= dim:
            store(part, (r * dim + j) * 4, mul(load(part, (r * dim + j) * 4), f))
            j += 8
        while j < dim:
            store_f32(part, (r * dim + j) * 4, load_f32(part, (r * dim + j) * 4) * factor)
            j += 1

    @inline
    def add_values(part, r, dim, p, values, left):
        """part += sum of p[i] * value row i; rows past `left` have p = 0 and repeat the last row."""
        row = dim * size
        p0, p1, p2, p3 = splat(lane(p, 0)), splat(lane(p, 1)), splat(lane(p, 2)), splat(lane(p, 3))
        p4, p5, p6, p7 = splat(lane(p, 4)), splat(lane(p, 5)), splat(lane(p, 6)), splat(lane(p, 7))
        v1, v2, v3 = values + min(1, left - 1) * row, values + min(2, left - 1) * row, values + min(3, left - 1) * row
        v4, v5 = values + min(4, left - 1) * row, values + min(5, left - 1) * row
        v6, v7 = values + min(6, left - 1) * row, values + min(7, left - 1) * row
        j = 0
        while j + 8 <= dim:
            at = j * size
            y = fma(p1, load_value(v1, at), fma(p0, load_value(values, at), load(part, (r * dim + j) * 4)))
            z = fma(p3, load_value(v3, at), mul(p2, load_value(v2, at)))
            u = fma(p5, load_value(v5, at), mul(p4, load_value(v4, at)))
            w = fma(p7, load_value(v7, at), mul(p6, load_value(v6, at)))
            store(part, (r * dim + j) * 4, add(add(y, z), add(u, w)))
            j += 8
        while j < dim:
            at = j * size
            y1 = load_f32(part, (r * dim + j) * 4) + lane(p, 0) * load_one(values, at) + lane(p, 1) * load_one(v1, at)
            y1 += lane(p, 2) * load_one(v2, at) + lane(p, 3) * load_one(v3, at) + lane(p, 4) * load_one(v4, at)
            y1 += lane(p, 5) * load_one(v5, at) + lane(p, 6) * load_one(v6, at) + lane(p, 7) * load_one(v7, at)
            store_f32(part, (r * dim + j) * 4, y1)
            j += 1

    @inline
    def clear(part, queries, dim):
        for j in range(queries * dim):
            store_f32(part, j * 4, np.float32(0))
        for r in range(queries):
            store_f32(part, (queries * dim + r) * 4, LOWEST)
            store_f32(part, (queries * dim + queries * 8 + r) * 4, np.float32(0))

    @outline
    def run_of_keys(part, q, queries, dim_k, dim_v, scale, keys, values, n):
        """Add n neighbouring slots to a partial."""
        maxima, sums = queries * dim_v * 4, (queries * dim_v + queries * 8) * 4
        for block in range((n + 7) // 8):
            i = block * 8
            left = min(8, n - i)
            for r in range(queries):
                scores = mul(dots(q + r * dim_k * 4, keys + i * dim_k * size, dim_k * size, left, dim_k), splat(scale))
                scores = keep_first(scores, left, LOWEST)
                top, highest = load_f32(part, maxima + r * 4), hmax(scores)
                total = load_f32(part, sums + r * 4)
                if highest > top:
                    factor = lane(exp(splat(top - highest)), 0)
                    rescale(part, r, dim_v, factor)
                    total *= factor
                    top = highest
                    store_f32(part, maxima + r * 4, top)
                p = keep_first(exp(sub(scores, splat(top))), left, np.float32(0))
                store_f32(part, sums + r * 4, total + hsum(p))
                add_values(part, r, dim_v, p, values + i * dim_v * size, left)

    def kernel(op, ith, nth):
        step = load_i64(op, 8)
        queries, n_kv, dim_k, dim_v, slots, sinks, partials, thread_bytes, partial_bytes, chunk = arguments(op)
        q, q_stride, q_sink, q_sink_stride = load_i64(op, 16), load_i64(op, 24), load_i64(op, 32), load_i64(op, 40)
        out, out_stride, spans, layer = load_i64(op, 48), load_i64(op, 56), load_i64(op, 64), load_i64(op, 72)
        scale = load_f32(op, 128)
        table = load_i64(step, 16)
        keys, values = load_i64(table, layer * 16), load_i64(table, layer * 16 + 8)
        tokens = load_i64(step, 0)
        alone = tokens == 1                      # then an item is one chunk, else one token with all its chunks
        most = (load_i32(spans, 4) > 0) + (load_i32(spans, 12) + chunk - 1) // chunk if alone else 1
        items = tokens * n_kv * most
        item = ith - nth
        while item + nth < items:                # one in turn for each thread: later tokens see more keys
            item += nth
            head, row, only = item // (tokens * most), 0 if alone else item % tokens, item % most
            k, v = keys + head * slots * dim_k * size, values + head * slots * dim_v * size
            n_sinks, first, length = load_i32(spans, row * 16 + 4), load_i32(spans, row * 16 + 8), load_i32(spans, row * 16 + 12)
            has_sinks = np.int64(n_sinks > 0)
            n_chunks = has_sinks + (length + chunk - 1) // chunk
            mine = partials + (head if alone else ith) * thread_bytes
            for c in range(only if alone else 0, only + 1 if alone else n_chunks):
                part = mine + c * partial_bytes
                clear(part, queries, dim_v)
                query = q + row * q_stride + head * queries * dim_k * 4
                begin, end = (c - has_sinks) * chunk, min(length, (c - has_sinks + 1) * chunk)
                start, before_wrap = first + begin, slots - (first + begin)
                if c < has_sinks:
                    query = q_sink + row * q_sink_stride + head * queries * dim_k * 4
                    begin, end, start, before_wrap = 0, n_sinks, 0, n_sinks
                if start >= slots:
                    start -= slots - sinks
                    before_wrap = slots - start
                count = min(end - begin, before_wrap)
                rest = end - begin - count
                for _ in range(2):               # up to the last slot, then on from the first one after the sinks
                    if count > 0:
                        run_of_keys(part, query, queries, dim_k, dim_v, scale,
                                    k + start * dim_k * size, v + start * dim_v * size, count)
                    start, count = sinks, rest
            if not alone:
                merge(mine, n_chunks, partial_bytes, queries, dim_v, out + row * out_stride + head * queries * dim_v * 4)

    return kernel
