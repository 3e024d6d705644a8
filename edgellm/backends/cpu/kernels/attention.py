"""Attention over the slots of a ring, flash style, in blocks of 32 keys at fixed places, so that a query's sums never depend on
which other queries are computed beside it, on the threads, or on how many tokens a step has.

Queries of one key/value head go together by fours: a block of keys and values is read and widened once for four of them. Blocks
make chunks of 256 slots; each gives a partial (weighted values, maximum, sum of weights), and these are merged in order. A single
token shares its chunks among the threads and leaves the merging to `attention_partial:merge`; of many, each thread takes some.

Keys and values in "q8_0" are widened to f32 block by block, once for all queries of a group, in memory of the thread's own.

Slots outside a query's window get the weight 0 exactly; they are zeroed memory or old keys, so they are numbers.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any  # what a Numba function is to the type checker

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels import attention_block, attention_partial, kv_rows
from edgellm.backends.cpu.kernels._inline import inline, outline
from edgellm.backends.cpu.simd import Isa

BLOCK, CHUNK, GROUP = abi.ATTENTION_BLOCK, abi.ATTENTION_CHUNK, abi.ATTENTION_GROUP


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
        work = load_i64(op, 160) + ith * load_i64(op, 168)
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
                walk(op, keys, values, work, part, row, here, head, base, 0 if sink_part else max(chunk * CHUNK, base),
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
    load_i64, load_i32, load_f32, store_i64 = isa.load_i64, isa.load_i32, isa.load_f32, isa.store_i64
    row_bytes, widen, widens = kv_rows.row(kv_type), kv_rows.widen(isa), kv_type == "q8_0"
    two, four = (attention_block.build("f32" if widens else kv_type, isa, queries) for queries in (2, 4))
    entry, scores_bytes = abi.ATTENTION_ENTRY, abi.ATTENTION_SCORES

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
    def walk(op, keys, values, work, part, row, tokens, head, base, at, end, sink_part):
        """Add the blocks from key `at` to `end` to the partials of all queries of some tokens: four at a time, the last two or one
        by twos. Where one is missing the last query is done twice; its copy goes to the extra row.
        """
        n_kv, dim_k, dim_v = load_i64(op, 88), load_i64(op, 96), load_i64(op, 104)
        queries, spans, slots, sinks = load_i64(op, 80) // n_kv, load_i64(op, 64), load_i64(op, 112), load_i64(op, 120)
        q, q_stride = load_i64(op, 32 if sink_part else 16), load_i64(op, 40 if sink_part else 24)
        scale, ring, n = load_f32(op, 128), slots - sinks, tokens * queries
        wide, scores = work, work + (BLOCK * (dim_k + dim_v) * 4 if widens else 0)       # what is read most stays aligned
        table = scores + scores_bytes
        for i in range(n + 1):
            token, query = min(i, n - 1) // queries, min(i, n - 1) % queries
            first, last = visible(spans + (row + token) * 16, base, sinks, ring, sink_part)
            store_i64(table, i * entry, q + (row + token) * q_stride + (head * queries + query) * dim_k * 4)
            store_i64(table, i * entry + 8, first)
            store_i64(table, i * entry + 16, last)
        while at < end:
            slot = at if sink_part else sinks + at % ring
            k, v = keys + slot * row_bytes(dim_k), values + slot * row_bytes(dim_v)
            if widens:
                widen(k, dim_k, wide)
                widen(v, dim_v, wide + BLOCK * dim_k * 4)
                k, v = wide, wide + BLOCK * dim_k * 4
            i = 0
            while i < n:
                here = 4 if n - i > 2 else 2
                if at + BLOCK > load_i64(table, i * entry + 8) and at < load_i64(table, (i + here - 1) * entry + 16):
                    if here == 4:
                        four(table, i, k, v, at, part, n + 1, scores, dim_k, dim_v, scale)
                    else:
                        two(table, i, k, v, at, part, n + 1, scores, dim_k, dim_v, scale)
                i += here
            at += BLOCK

    return walk
