"""Attention over pages of keys and values, online softmax in blocks of 32 keys at fixed places of the ring, so that a query's sums
never depend on which other queries are computed beside it, on the threads, or on how many tokens a step has.

Queries of one key/value head go together by fours: a block of keys and values is read and widened once for four of them. Blocks
make chunks of 256 slots, a page each; each gives a partial (weighted values, maximum, sum of weights), and these are merged in
order. What is to be done is listed beforehand (step_block.py).

Keys and values in quants are rotated (rotation.py): queries are rotated too, and the result back. They are multiplied as integers,
with queries and weights in i16; for more than a few queries they become i16 first, block by block, once for all queries of a group,
in memory of the thread's own. Where dims do not fill blocks they are widened to f32 instead; so are keys and values in f16 at ISA
levels with sixteen float lanes. There keys in f16 and f32 are transposed.

Keys that hold their values (MLA) lie once in a page, where the values' place is that of the keys.

Slots outside a query's window get the weight 0 exactly; they are zeroed memory or old keys, so they are numbers.
"""

from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

import numpy as np
from numba import types

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.attention import attention_block, attention_partial, kv_quants, kv_rows, rotation
from edgellm.backends.cpu.kernels.attention.attention_block import BLOCKS_AHEAD
from edgellm.backends.cpu.kernels.attention.kv_forms import INT16
from edgellm.backends.cpu.kernels.inline import inline, outline
from edgellm.backends.cpu.kernels.prefetch import KV_NEAR
from edgellm.backends.cpu.ops.attention import ATTENTION, RELATIVE_ROW
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.memory.kv_types import QUANTISED

BLOCK, CHUNK = abi.ATTENTION_BLOCK, abi.ATTENTION_CHUNK
ITEMS, ITEM = abi.WORK_ITEMS * 8, 6 * 8  # bytes: where items begin, and of one
DIRECT, PIECE = 8, 32  # of so many queries, f16 is not widened in memory; values of a block of quants
SOFTCAP_VARIANT, ALIBI_VARIANT, RELATIVE_VARIANT, LEARNED_VARIANT = "_softcap", "_alibi", "_relative", "_learned"


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32 = isa("load_i64 load_i32")
    clear, combine = attention_partial.clear(isa), attention_partial.combine(isa)
    finish = attention_partial.finish(isa, learned=variant.endswith(LEARNED_VARIANT), rotated=variant.startswith(QUANTISED))
    walk, row_bytes = _walk(variant, isa), kv_rows.row(_kv_type(variant))
    SPANS, WORK, OUT, OUT_STRIDE = ATTENTION.offsets("spans work out out_stride")
    N_KV, QUERIES, DIM_K, DIM_V, RING, SINKS = ATTENTION.offsets("n_kv queries dim_k dim_v ring sinks")
    SINK_SLOTS, KEYS_AT, VALUES_AT = ATTENTION.offsets("sink_slots keys_at values_at")
    PARTIALS, PARTIAL_BYTES, SCRATCH, SCRATCH_BYTES, LEARNED = ATTENTION.offsets(
        "partials partial_bytes scratch scratch_bytes learned"
    )

    @inline
    def window(op, row):
        """The block at which a row's window begins, and the chunk that its sinks count as."""
        span = load_i64(op, SPANS) + row * 16
        base = (load_i32(span, 8) - load_i64(op, SINKS)) // BLOCK * BLOCK
        return base, base // CHUNK - 1 if load_i32(span, 4) > 0 else np.int64(-2)

    @inline
    def rows_of(op, item, head, chunk):
        """Where the first key and the first value are of a chunk that an item's rows see."""
        pages = load_i64(item, 16)
        base, sink_chunk = window(op, load_i64(item, 0))
        at, slots = max(chunk * CHUNK, base), np.int64(CHUNK)
        page = load_i64(pages, (at % load_i64(op, RING) // CHUNK + 1) * 8)
        if chunk == sink_chunk:
            at, slots, page = np.int64(0), load_i64(op, SINK_SLOTS), load_i64(pages, 0)
        dim_k, dim_v, own_values = load_i64(op, DIM_K), load_i64(op, DIM_V), load_i64(op, KEYS_AT) != load_i64(op, VALUES_AT)
        keys, values = page + load_i64(op, KEYS_AT) * slots, page + load_i64(op, VALUES_AT) * slots
        key, value = at % CHUNK, at % CHUNK
        if own_values:  # otherwise one key serves all heads, and its first dims are the value
            key, value = key + head * slots, value + head * slots
        return keys + key * row_bytes(dim_k), values + value * row_bytes(dim_v if own_values else dim_k)

    @inline
    def at(work, index, items, heads, first_head, by_head):
        """An item, and the head that it is done for. Tokens that see the same keys of a head follow each other."""
        if by_head:
            return work + ITEMS + index % items * ITEM, first_head + index // items
        return work + ITEMS + index // heads * ITEM, first_head + index % heads

    def kernel(op, ith, nth):
        work, n_kv, queries, dim_v = load_i64(op, WORK), load_i64(op, N_KV), load_i64(op, QUERIES), load_i64(op, DIM_V)
        ring, sinks, partial_bytes = load_i64(op, RING), load_i64(op, SINKS), load_i64(op, PARTIAL_BYTES)
        mine = load_i64(op, SCRATCH) + ith * load_i64(op, SCRATCH_BYTES)
        items, heads, first_head, start, step, by_head = load_i64(work, 0), n_kv, 0, ith, nth, False
        if n_kv % nth == 0:  # else one in turn for each thread: later tokens see more keys
            heads = n_kv // nth
            first_head, start, step, by_head = ith * heads, 0, 1, True
        last_index = items * heads - 1
        for index in range(start, last_index + 1, step):
            item, head = at(work, index, items, heads, first_head, by_head)
            row, here = load_i64(item, 0), load_i64(item, 8)
            chunk, last, partial = load_i64(item, 24), load_i64(item, 32), load_i64(item, 40)
            last_span = load_i64(op, SPANS) + (row + here - 1) * 16
            base, sink_chunk = window(op, row)
            end = load_i32(last_span, 8) - sinks
            if end < base:
                end += ring
            end += load_i32(last_span, 12)
            rows, part = here * queries + 1, mine + partial_bytes
            if partial >= 0:
                part = load_i64(op, PARTIALS) + (partial * n_kv + head) * partial_bytes
            else:
                clear(mine, rows, dim_v)
            while chunk < last:
                clear(part, rows, dim_v)
                keys, values = rows_of(op, item, head, chunk)
                next_item, next_head, next_chunk = item, head, chunk + 1  # of this thread
                if next_chunk == last:
                    next_item, next_head = at(work, min(index + step, last_index), items, heads, first_head, by_head)
                    next_chunk = load_i64(next_item, 24)
                next_keys, next_values = rows_of(op, next_item, next_head, next_chunk)
                sink_part = chunk == sink_chunk
                walk(
                    op,
                    keys,
                    values,
                    next_keys,
                    next_values,
                    part,
                    part_work(op, mine),
                    row,
                    here,
                    head,
                    base,
                    0 if sink_part else max(chunk * CHUNK, base),
                    load_i32(last_span, 4) if sink_part else min((chunk + 1) * CHUNK, end),
                    sink_part,
                )
                chunk += 1
                if partial < 0:
                    combine(mine, part, rows, dim_v)
            if partial < 0:
                for t in range(here):
                    finish(
                        mine,
                        rows,
                        t * queries,
                        queries,
                        dim_v,
                        load_i64(op, OUT) + (row + t) * load_i64(op, OUT_STRIDE) + head * queries * dim_v * 4,
                        load_i64(op, LEARNED) + head * queries * 4,
                    )

    @inline
    def part_work(op, mine):
        """Where scores stand, behind a thread's two partials."""
        return mine + 2 * load_i64(op, PARTIAL_BYTES)

    return kernel


def _blocks(kv_type: str, variant: str, isa: Isa, *, transposed: bool = False) -> list[Any]:
    """Of two and of four queries. Rows of f32 have been widened, so that they are in the cache."""
    relative = RELATIVE_VARIANT in variant
    return [
        attention_block.build(
            kv_type,
            isa,
            queries,
            softcap=SOFTCAP_VARIANT in variant,
            alibi=ALIBI_VARIANT in variant and not relative,
            relative=relative,
            fetches=kv_type not in ("f32", INT16),
            transposed=transposed,
        )
        for queries in (2, 4)
    ]


def _kv_type(variant: str) -> str:
    for suffix in (LEARNED_VARIANT, RELATIVE_VARIANT, ALIBI_VARIANT, SOFTCAP_VARIANT):
        variant = variant.removesuffix(suffix)
    return variant


def _walk(variant: str, isa: Isa) -> Any:
    kv_type = _kv_type(variant)
    relative = RELATIVE_VARIANT in variant
    biased = relative or ALIBI_VARIANT in variant
    load_i64, load_i32, load_f32, store_i64, store_f32 = isa("load_i64 load_i32 load_f32 store_i64 store_f32")
    coded, row_bytes = kv_type in QUANTISED, kv_rows.row(kv_type)
    transposes, plain = not coded and isa.level.lanes > 8, kv_type == "f32"  # values in f32 stay where they are
    widens, widen = coded or transposes, kv_rows.widen(kv_type, isa)
    widen_keys, widen_row = (kv_rows.transpose(kv_type, isa), kv_rows.widen_halves(isa, 1)) if transposes else (widen, widen)
    load, store = isa("load_f32x8 store_f32x8")
    rotate = rotation.rotate(isa)
    two, four = _blocks("f32" if widens else kv_type, variant, isa, transposed=transposes)
    two_direct, four_direct = _blocks(kv_type, variant, isa) if widens else (two, four)
    two_int16, four_int16 = _blocks(INT16, variant, isa) if coded else (two, four)
    to_int16 = kv_rows.to_int16(kv_type, isa) if coded else widen
    query_to_int16 = isa.make("query_to_int16", types.void, (types.int64, types.int64), kv_quants.query_to_int16)
    entry, scores_bytes = abi.ATTENTION_ENTRY, abi.ATTENTION_SCORES
    Q, Q_STRIDE, Q_SINK, Q_SINK_STRIDE, SPANS = ATTENTION.offsets("q q_stride q_sink q_sink_stride spans")
    QUERIES, DIM_K, DIM_V, SCALE, SOFTCAP, SLOPES = ATTENTION.offsets("queries dim_k dim_v scale softcap slopes")
    RING, SINKS, KEYS_AT, VALUES_AT = ATTENTION.offsets("ring sinks keys_at values_at")

    @inline
    def visible(span, base, sinks, ring, sink_part):
        """Keys first..end-1 of a token, counted from the window's block at `base` on without wrapping, or its sinks."""
        if sink_part:
            return 0, load_i32(span, 4)
        first = load_i32(span, 8) - sinks
        if first < base:
            first += ring
        return first, first + load_i32(span, 12)

    @inline
    def later(place, blocks, at, stop, after, size):
        """Where rows of `size` bytes are so many blocks after key `at`, at `place`; from key `stop` on they are at `after`."""
        over = at + blocks * BLOCK - stop
        return place + blocks * BLOCK * size if over < 0 else after + over * size

    @inline
    def rotated(q, dim, target, integers):
        """A copy of a query, rotated as keys are; with `integers` in i16."""
        for eight in range(dim // 8):
            store(target, eight * 32, load(q, eight * 32))
        for j in range(dim // 8 * 8, dim):
            store_f32(target, j * 4, load_f32(q, j * 4))
        rotate(target, dim)
        if integers:
            query_to_int16(target, dim)
        return target

    @outline
    def walk(op, k, v, after_k, after_v, part, work, row, tokens, head, base, at, end, sink_part):
        """Add the blocks from key `at`, which is at `k` as its value is at `v`, to `end` to the partials of all queries of some
        tokens: four at a time, the last two or one by twos. Where one is missing the last query is done twice; its copy goes to
        the extra row. `after_k`, `after_v`: what is read next, to be prefetched.
        """
        dim_k, dim_v, queries = load_i64(op, DIM_K), load_i64(op, DIM_V), load_i64(op, QUERIES)
        integers = coded and dim_k % PIECE == 0 and dim_v % PIECE == 0  # products are
        spans, ring, sinks = load_i64(op, SPANS), load_i64(op, RING), load_i64(op, SINKS)
        q, q_stride = load_i64(op, Q_SINK if sink_part else Q), load_i64(op, Q_SINK_STRIDE if sink_part else Q_STRIDE)
        scale, softcap, n = load_f32(op, SCALE), load_f32(op, SOFTCAP), tokens * queries
        own_values = load_i64(op, KEYS_AT) != load_i64(op, VALUES_AT)
        value_row, stop = dim_v if own_values else dim_k, (end + BLOCK - 1) // BLOCK * BLOCK
        key_bytes, value_bytes = row_bytes(dim_k), row_bytes(value_row)
        widened = BLOCK * (dim_k + (0 if plain else dim_v)) * 4 if widens else 0
        wide, scores = work, work + widened  # what is read most stays aligned
        table = scores + scores_bytes
        turned = table + (n + 1) * entry
        for i in range(n + 1):
            token, query = min(i, n - 1) // queries, min(i, n - 1) % queries
            first, last = visible(spans + (row + token) * 16, base, sinks, ring, sink_part)
            query_at = q + (row + token) * q_stride + (head * queries + query) * dim_k * 4
            if coded:
                query_at = rotated(query_at, dim_k, turned + i * dim_k * 4, integers)
            store_i64(table, i * entry, query_at)
            store_i64(table, i * entry + 8, first)
            store_i64(table, i * entry + 16, last)
            if biased:
                span = spans + (row + token) * 16
                own = load_i32(span, 0) - load_i32(span, 8)  # a token's own key is its last, or in the midst
                if own < 0:
                    own += ring
                if sink_part:  # sinks stand right before the window
                    own = load_i32(span, 12) - 1
                store_i64(table, i * entry + 24, last + own if sink_part else first + own)
                if relative:
                    store_i64(table, i * entry + 32, load_i64(op, SLOPES) + (head * queries + query) * RELATIVE_ROW * 4)
                else:
                    store_f32(table, i * entry + 32, load_f32(load_i64(op, SLOPES), (head * queries + query) * 4))
        direct = n <= DIRECT and (integers or not coded)
        value_step = dim_v if transposes and not (direct or plain) else value_row
        blocks_ahead = 1 if KV_NEAR > 0 and BLOCK * key_bytes >= KV_NEAR else BLOCKS_AHEAD
        while at < end:
            later_k = later(k, blocks_ahead, at, stop, after_k, key_bytes)
            later_v = later(v, blocks_ahead - 1, at, stop, after_v, value_bytes)
            next_k, next_v = k + BLOCK * key_bytes, v + BLOCK * value_bytes
            if widens and not direct:
                soon_k = later(k, 1, at, stop, after_k, key_bytes)
                k_values, ahead = v, v - k if own_values else soon_k - k
                if not plain:
                    v = wide + BLOCK * dim_k * 4 if own_values or transposes else wide
                if integers:
                    to_int16(k, dim_k, wide, ahead)
                    if own_values:
                        to_int16(k_values, dim_v, v, soon_k - k_values)
                else:
                    widen_keys(k, dim_k, wide, ahead)
                    if own_values and not plain:
                        widen(k_values, dim_v, v, soon_k - k_values)
                    elif transposes and not plain:
                        for key in range(BLOCK):
                            widen_row(k + key * key_bytes, dim_v, v + key * dim_v * 4, 0)
                k = wide
            i = 0
            while i < n:
                here = 4 if n - i > 2 else 2
                if at + BLOCK > load_i64(table, i * entry + 8) and at < load_i64(table, (i + here - 1) * entry + 16):
                    if widens and direct:
                        if here == 4:
                            four_direct(
                                table, i, k, v, later_k, later_v, at, part, n + 1, scores, dim_k, dim_v, value_step, scale, softcap
                            )
                        else:
                            two_direct(
                                table, i, k, v, later_k, later_v, at, part, n + 1, scores, dim_k, dim_v, value_step, scale, softcap
                            )
                    elif integers:
                        if here == 4:
                            four_int16(
                                table, i, k, v, later_k, later_v, at, part, n + 1, scores, dim_k, dim_v, value_step, scale, softcap
                            )
                        else:
                            two_int16(
                                table, i, k, v, later_k, later_v, at, part, n + 1, scores, dim_k, dim_v, value_step, scale, softcap
                            )
                    elif here == 4:
                        four(table, i, k, v, later_k, later_v, at, part, n + 1, scores, dim_k, dim_v, value_step, scale, softcap)
                    else:
                        two(table, i, k, v, later_k, later_v, at, part, n + 1, scores, dim_k, dim_v, value_step, scale, softcap)
                i += here
            at, k, v = at + BLOCK, next_k, next_v

    return walk
