"""Attention over the slots of a ring, flash style, in blocks of 32 keys at fixed places, so that a query's sums never depend on
which other queries are computed beside it, on the threads, or on how many tokens a step has.

Queries of one key/value head go together in pairs: a block of keys and values is read and widened once for two of them. Blocks
make chunks of 256 slots; each gives a partial (weighted values, maximum, sum of weights), and these are merged in order. A single
token shares its chunks among the threads and leaves the merging to `attention_partial:merge`; of many, each thread takes some.

Keys and values in "q8_0" are widened to f32 block by block, once for all queries of a group, in memory of the thread's own.

Slots outside a query's window get the weight 0 exactly; they are zeroed memory or old keys, so they are numbers.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any  # what a Numba function is to the type checker

import numpy as np
from numba import types

from edgellm.backends.cpu import control
from edgellm.backends.cpu.kernels import attention_partial, kv_rows
from edgellm.backends.cpu.kernels._inline import inline, outline
from edgellm.backends.cpu.simd import F32X8, Isa
from edgellm.backends.cpu.simd.base import I32
from edgellm.backends.cpu.simd.generic import V8I, Generic

BLOCK, CHUNK, GROUP = control.ATTENTION_BLOCK, control.ATTENTION_CHUNK, control.ATTENTION_GROUP
LOWEST = attention_partial.LOWEST


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_i32 = isa.load_i64, isa.load_i32
    row_bytes = kv_rows.row(variant)
    clear, combine, finish = attention_partial.clear(isa), attention_partial.combine(isa), attention_partial.finish(isa)
    places, walk = attention_partial.count(isa), _walk(variant, isa)

    def kernel(op, ith, nth):
        step, spans, layer = load_i64(op, 8), load_i64(op, 64), load_i64(op, 72)
        n_kv, dim_k, dim_v = load_i64(op, 88), load_i64(op, 96), load_i64(op, 104)
        queries, slots, sinks = load_i64(op, 80) // n_kv, load_i64(op, 112), load_i64(op, 120)
        out, out_stride, partials, own_bytes = load_i64(op, 48), load_i64(op, 56), load_i64(op, 136), load_i64(op, 144)
        wide = load_i64(op, 160) + ith * load_i64(op, 168)
        tokens, table = load_i64(step, 0), load_i64(step, 16)
        alone, together = tokens == 1, max(1, GROUP // queries)
        share = places(spans, sinks) if alone else (tokens + together - 1) // together     # items of one head
        item = ith - nth
        while item + nth < n_kv * share:         # one in turn for each thread: later tokens see more keys
            item += nth
            head, place = item // share, item % share
            row = 0 if alone else place * together
            here = min(together, tokens - row)
            keys = load_i64(table, layer * 16) + head * slots * row_bytes(dim_k)
            values = load_i64(table, layer * 16 + 8) + head * slots * row_bytes(dim_v)
            base = (load_i32(spans, row * 16 + 8) - sinks) // BLOCK * BLOCK
            end = load_i32(spans, (row + here - 1) * 16 + 8) - sinks
            if end < base:
                end += slots - sinks
            end += load_i32(spans, (row + here - 1) * 16 + 12)
            n_sinks, has_sinks = load_i32(spans, (row + here - 1) * 16 + 4), np.int64(load_i32(spans, row * 16 + 4) > 0)
            mine = partials + (head if alone else ith) * own_bytes
            part, rows = mine + load_i64(op, 152) * (place if alone else 1), here * queries + 1
            first = base // CHUNK - has_sinks    # the sinks are the chunk before the first
            last = (end + CHUNK - 1) // CHUNK
            if not alone:
                clear(mine, rows, dim_v)
            chunk = first + place if alone else first
            while chunk < last:
                clear(part, rows, dim_v)
                sink_part = has_sinks == 1 and chunk == first
                walk(op, keys, values, wide, part, row, here, head, base, 0 if sink_part else max(chunk * CHUNK, base),
                     n_sinks if sink_part else min((chunk + 1) * CHUNK, end), sink_part)
                chunk += 1
                if alone:
                    break
                combine(mine, part, rows, dim_v)
            if not alone:
                for t in range(here):
                    finish(mine, rows, t * queries, queries, dim_v,
                           out + (row + t) * out_stride + head * queries * dim_v * 4)

    return kernel


def _walk(kv_type: str, isa: Isa) -> Any:
    load_i64, load_i32, load_f32 = isa.load_i64, isa.load_i32, isa.load_f32
    row_bytes, widen, widens = kv_rows.row(kv_type), kv_rows.widen(isa), kv_type == "q8_0"
    block_of_keys = _block("f32" if widens else kv_type, isa)

    @inline
    def visible(span, base, sinks, ring, sink_part):
        """Keys first..end-1 of a token, counted from the window's block at `base` on without wrapping, or its sinks."""
        if sink_part:
            return 0, load_i32(span, 4)
        first = load_i32(span, 8) - sinks
        if first < base:
            first += ring
        return first, first + load_i32(span, 12)

    @outline
    def walk(op, keys, values, wide, part, row, tokens, head, base, at, end, sink_part):
        """Add the blocks from key `at` to `end` to the partials of all queries of some tokens, two queries at a time."""
        n_kv, dim_k, dim_v = load_i64(op, 88), load_i64(op, 96), load_i64(op, 104)
        queries, spans, slots, sinks = load_i64(op, 80) // n_kv, load_i64(op, 64), load_i64(op, 112), load_i64(op, 120)
        q, q_stride = load_i64(op, 32 if sink_part else 16), load_i64(op, 40 if sink_part else 24)
        scale, ring, n = load_f32(op, 128), slots - sinks, tokens * queries
        while at < end:
            slot = at if sink_part else sinks + at % ring
            k, v = keys + slot * row_bytes(dim_k), values + slot * row_bytes(dim_v)
            if widens:
                widen(k, dim_k, wide)
                widen(v, dim_v, wide + BLOCK * dim_k * 4)
                k, v = wide, wide + BLOCK * dim_k * 4
            i = 0
            while i < n:
                j = min(i + 1, n - 1)            # a query alone is computed twice; its copy goes to the extra row
                row_i, row_j = row + i // queries, row + j // queries
                from_i, to_i = visible(spans + row_i * 16, base, sinks, ring, sink_part)
                from_j, to_j = visible(spans + row_j * 16, base, sinks, ring, sink_part)
                if at + BLOCK > min(from_i, from_j) and at < max(to_i, to_j):
                    block_of_keys(q + row_i * q_stride + (head * queries + i % queries) * dim_k * 4,
                                  q + row_j * q_stride + (head * queries + j % queries) * dim_k * 4,
                                  k, v, part, n + 1, i, dim_k, dim_v, scale, from_i - at, to_i - at, from_j - at, to_j - at)
                i += 2
            at += BLOCK

    return walk


def _block(kv_type: str, isa: Isa) -> Any:
    """32 keys for two queries: scores, weights, weighted values."""
    load_f32, store_f32 = isa.load_f32, isa.store_f32
    load, store, add, sub = isa.load_f32x8, isa.store_f32x8, isa.add_f32x8, isa.sub_f32x8
    mul, splat = isa.mul_f32x8, isa.splat_f32x8
    larger, hmax, exp, first_lane, keep_first = isa.max_f32x8, isa.hmax_f32x8, isa.exp_f32x8, isa.first_f32x8, isa.keep_first_f32x8
    drop_first = isa.make("drop_first", F32X8, (F32X8, types.int64, types.float32), _drop_first)
    size = {"f32": 4, "f16": 2}[kv_type]
    scores, weigh = _scores(kv_type, isa), _weigh(kv_type, isa)

    @outline
    def weights(s, part, rows, r, dim, scale, first, end):
        """Scores at s become weights; the query's running maximum, sum and values follow."""
        lowest = splat(LOWEST)
        top = lowest
        for eight in range(4):
            x = mul(load(s, eight * 32), splat(scale))
            x = drop_first(keep_first(x, end - eight * 8, LOWEST), first - eight * 8, LOWEST)
            store(s, eight * 32, x)
            top = larger(x, top)
        maximum, highest = load_f32(part, (rows * dim + r * 16) * 4), hmax(top)
        total = load(part, (rows * dim + r * 16 + 8) * 4)
        if highest > maximum:
            factor = splat(first_lane(exp(splat(maximum - highest))))
            j = 0
            while j + 8 <= dim:
                store(part, (r * dim + j) * 4, mul(load(part, (r * dim + j) * 4), factor))
                j += 8
            while j < dim:
                store_f32(part, (r * dim + j) * 4, load_f32(part, (r * dim + j) * 4) * first_lane(factor))
                j += 1
            total = mul(total, factor)
            maximum = highest
            store_f32(part, (rows * dim + r * 16) * 4, maximum)
        for eight in range(4):
            p = exp(sub(load(s, eight * 32), splat(maximum)))
            p = drop_first(keep_first(p, end - eight * 8, np.float32(0)), first - eight * 8, np.float32(0))
            store(s, eight * 32, p)
            total = add(total, p)
        store(part, (rows * dim + r * 16 + 8) * 4, total)

    @outline
    def block(q_i, q_j, keys, values, part, rows, i, dim_k, dim_v, scale, from_i, to_i, from_j, to_j):
        scratch, j = part + rows * (dim_v + 16) * 4, i + 1
        low, high = max(min(from_i, from_j), 0), min(max(to_i, to_j), BLOCK)
        for eight in range(low // 8, (high + 7) // 8):
            scores(q_i, q_j, keys + eight * 8 * dim_k * size, dim_k, scratch + eight * 32)
        weights(scratch, part, rows, i, dim_v, scale, from_i, to_i)
        weights(scratch + BLOCK * 4, part, rows, j, dim_v, scale, from_j, to_j)
        for eight in range(low // 8, (high + 7) // 8):
            weigh(part + i * dim_v * 4, part + j * dim_v * 4, values + eight * 8 * dim_v * size, dim_v, scratch + eight * 32)

    return block


def _drop_first(e: Generic, a: Any, n: Any, fill: Any) -> Any:
    """Lanes before n become fill."""
    lanes = e.constant(V8I, [0, 1, 2, 3, 4, 5, 6, 7])
    return e.b.select(e.b.icmp_signed("<", lanes, e.splat(e.b.trunc(n, I32))), e.splat(fill), a)


def _scores(kv_type: str, isa: Isa) -> Any:
    """Dot products of two queries with eight keys, stored at s and a block further."""
    load, store, fma, zero, add = isa.load_f32x8, isa.store_f32x8, isa.fma_f32x8, isa.zero_f32x8, isa.add_f32x8
    load_f32, transposed, pack = isa.load_f32, isa.sum8_f32x8, isa.pack_f32x8
    load_key, load_one, size = {"f32": (isa.load_f32x8, isa.load_f32, 4), "f16": (isa.load_f16x8, isa.load_f16, 2)}[kv_type]

    @inline
    def rest(q, keys, row, j, dim):
        """The dims past the last eight, one query."""
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = np.float32(0)
        while j < dim:
            x, at = load_f32(q, j * 4), j * size
            a0, a1 = a0 + x * load_one(keys, at), a1 + x * load_one(keys + row, at)
            a2, a3 = a2 + x * load_one(keys + 2 * row, at), a3 + x * load_one(keys + 3 * row, at)
            a4, a5 = a4 + x * load_one(keys + 4 * row, at), a5 + x * load_one(keys + 5 * row, at)
            a6, a7 = a6 + x * load_one(keys + 6 * row, at), a7 + x * load_one(keys + 7 * row, at)
            j += 1
        return pack(a0, a1, a2, a3, a4, a5, a6, a7)

    @inline
    def scores(q_i, q_j, keys, dim, s):
        row = dim * size
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = zero()
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = zero()
        j = 0
        while j + 8 <= dim:
            x, y, at = load(q_i, j * 4), load(q_j, j * 4), j * size
            k = load_key(keys, at)
            a0, b0 = fma(x, k, a0), fma(y, k, b0)
            k = load_key(keys + row, at)
            a1, b1 = fma(x, k, a1), fma(y, k, b1)
            k = load_key(keys + 2 * row, at)
            a2, b2 = fma(x, k, a2), fma(y, k, b2)
            k = load_key(keys + 3 * row, at)
            a3, b3 = fma(x, k, a3), fma(y, k, b3)
            k = load_key(keys + 4 * row, at)
            a4, b4 = fma(x, k, a4), fma(y, k, b4)
            k = load_key(keys + 5 * row, at)
            a5, b5 = fma(x, k, a5), fma(y, k, b5)
            k = load_key(keys + 6 * row, at)
            a6, b6 = fma(x, k, a6), fma(y, k, b6)
            k = load_key(keys + 7 * row, at)
            a7, b7 = fma(x, k, a7), fma(y, k, b7)
            j += 8
        a, b = transposed(a0, a1, a2, a3, a4, a5, a6, a7), transposed(b0, b1, b2, b3, b4, b5, b6, b7)
        if j < dim:
            a, b = add(a, rest(q_i, keys, row, j, dim)), add(b, rest(q_j, keys, row, j, dim))
        store(s, 0, a)
        store(s, BLOCK * 4, b)

    return scores


def _weigh(kv_type: str, isa: Isa) -> Any:
    """Add eight value rows, times their weights at s (and a block further), to the sums of two queries."""
    load, store, add, mul = isa.load_f32x8, isa.store_f32x8, isa.add_f32x8, isa.mul_f32x8
    fma, splat = isa.fma_f32x8, isa.splat_f32x8
    load_f32, store_f32 = isa.load_f32, isa.store_f32
    load_value, load_one, size = {"f32": (isa.load_f32x8, isa.load_f32, 4), "f16": (isa.load_f16x8, isa.load_f16, 2)}[kv_type]

    @inline
    def weigh(sum_i, sum_j, values, dim, s):
        row, t = dim * size, s + BLOCK * 4
        p0, p1, p2, p3 = splat(load_f32(s, 0)), splat(load_f32(s, 4)), splat(load_f32(s, 8)), splat(load_f32(s, 12))
        p4, p5, p6, p7 = splat(load_f32(s, 16)), splat(load_f32(s, 20)), splat(load_f32(s, 24)), splat(load_f32(s, 28))
        r0, r1, r2, r3 = splat(load_f32(t, 0)), splat(load_f32(t, 4)), splat(load_f32(t, 8)), splat(load_f32(t, 12))
        r4, r5, r6, r7 = splat(load_f32(t, 16)), splat(load_f32(t, 20)), splat(load_f32(t, 24)), splat(load_f32(t, 28))
        j = 0
        while j + 8 <= dim:
            at = j * size
            v = load_value(values, at)
            a, c = fma(p0, v, load(sum_i, j * 4)), fma(r0, v, load(sum_j, j * 4))
            v = load_value(values + row, at)
            b, d = mul(p1, v), mul(r1, v)
            v = load_value(values + 2 * row, at)
            a, c = fma(p2, v, a), fma(r2, v, c)
            v = load_value(values + 3 * row, at)
            b, d = fma(p3, v, b), fma(r3, v, d)
            v = load_value(values + 4 * row, at)
            a, c = fma(p4, v, a), fma(r4, v, c)
            v = load_value(values + 5 * row, at)
            b, d = fma(p5, v, b), fma(r5, v, d)
            v = load_value(values + 6 * row, at)
            a, c = fma(p6, v, a), fma(r6, v, c)
            v = load_value(values + 7 * row, at)
            b, d = fma(p7, v, b), fma(r7, v, d)
            store(sum_i, j * 4, add(a, b))
            store(sum_j, j * 4, add(c, d))
            j += 8
        while j < dim:
            a1, c1 = load_f32(sum_i, j * 4), load_f32(sum_j, j * 4)
            for key in range(8):
                v1 = load_one(values + key * row, j * size)
                a1 += load_f32(s, key * 4) * v1
                c1 += load_f32(t, key * 4) * v1
            store_f32(sum_i, j * 4, a1)
            store_f32(sum_j, j * 4, c1)
            j += 1

    return weigh
