"""A block of keys and values for two or four queries, as IR: scores, the weights they become, weighted values.

The queries of a group have an entry each in a table: the address of their values, and the first key and the end of the keys that
they see, counted as the block's place is; for ALiBi also the place of its own key, and its slope. Their scores, which become
weights, are rows of a block's length, and after four rows stand the factors by which each query's sums shrink, because its maximum
has grown. What happens to a query does not depend on the others: keys that only these see have the weight 0, and a factor that
changes nothing is 1.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.attention import int16, kv_forms
from edgellm.backends.cpu.kernels.attention.kv_forms import INT16, KVForm
from edgellm.backends.cpu.kernels.attention.parts import BLOCK, ENTRY, FACTORS, LANES, ROW, fetch, multiplied, split, variables
from edgellm.backends.cpu.kernels.inline import outline
from edgellm.backends.cpu.kernels.prefetch import TO_FIRST
from edgellm.backends.cpu.ops.attention import RELATIVE_FIRST, RELATIVE_ROW
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import F32, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.memory.kv_types import QUANTISED

INTEGERS = (*QUANTISED, INT16)  # forms of keys and values that are multiplied as integers
WIDE = vector(F32, 2 * LANES)
BLOCKS_AHEAD = 1 if TO_FIRST else 2  # that keys are fetched, and values one less: two would not fit a first-level cache


def build(
    kv_type: str,
    isa: Isa,
    queries: int,
    *,
    softcap: bool = False,
    alibi: bool = False,
    relative: bool = False,
    fetches: bool = True,
    transposed: bool = False,
) -> Any:
    """block(table, first_query, keys, values, next_keys, next_values, at, part, rows, scores, dim_k, dim_v, value_row, scale, cap):
    add keys `at` to `at` + 31 to the partials of this many queries, which are f32, for quants i16 (kv_quants.query_to_int16).
    `value_row`: from value to value, in elements. With `fetches`, `next_values` are on their way to the cache while scores are
    computed, and `next_keys` while values are added. `transposed`: whether keys lie as kv_rows.transpose has them.
    """
    quants = kv_type in INTEGERS  # of which dims are a multiple of a block's
    i64, f32, void = types.int64, types.float32, types.void
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    form = kv_forms.FORMS[kv_type]
    load_one, size = {"f32": isa.load_f32, "f16": isa.load_f16}.get(kv_type), form.bytes_of_eight // LANES
    score = isa.make(
        "score",
        void,
        (i64,) * 7,
        lambda e, table, keys, next_values, dim, scores, *seen: (
            _score_transposed(e, queries, table, keys, dim, scores)
            if transposed
            else _score(e, form, queries, fetches, table, keys, next_values, dim, scores, *seen)
        ),
    )
    weights = isa.make(
        "weights", void, (i64, i64, i64, i64, f32, f32), lambda e, *a: _weights(e, queries, softcap, alibi, relative, *a)
    )
    weigh = isa.make("weigh", void, (i64,) * 8, lambda e, *a: _weigh(e, form, queries, fetches, *a))

    @outline
    def score_rest(table, keys, dim, scores, first, end):
        """The dims past the last eight."""
        for i in range(queries):
            q = load_i64(table, i * ENTRY)
            for key in range(first, end):
                total = np.float32(0)
                for j in range(dim // LANES * LANES, dim):
                    total += load_f32(q, j * 4) * load_one(keys, (j * BLOCK + key if transposed else key * dim + j) * size)
                store_f32(scores, i * ROW + key * 4, load_f32(scores, i * ROW + key * 4) + total)

    @outline
    def weigh_rest(sums, values, dim, value_row, scores, first, end):
        for i in range(queries):
            for j in range(dim // LANES * LANES, dim):
                at = (i * dim + j) * 4
                total = load_f32(sums, at) * load_f32(scores, FACTORS + i * 4)
                for key in range(first, end):
                    total += load_f32(scores, i * ROW + key * 4) * load_one(values, (key * value_row + j) * size)
                store_f32(sums, at, total)

    @outline
    def block(
        table, first_query, keys, values, next_keys, next_values, at, part, rows, scores, dim_k, dim_v, value_row, scale, cap
    ):
        entries = table + first_query * ENTRY
        low = max(load_i64(entries, 8) - at, 0) // LANES * LANES  # later queries see no earlier keys
        high = (min(load_i64(entries, (queries - 1) * ENTRY + 16) - at, BLOCK) + LANES - 1) // LANES * LANES
        score(entries, keys, next_values, dim_k, scores, low, high)
        if not quants and dim_k % LANES:
            score_rest(entries, keys, dim_k, scores, low, high)
        weights(entries, at, part + (rows * dim_v + first_query * 16) * 4, scores, scale, cap)
        sums = part + first_query * dim_v * 4
        weigh(sums, values, next_keys, dim_v, value_row, scores, low, high)
        if not quants and dim_v % LANES:
            weigh_rest(sums, values, dim_v, value_row, scores, low, high)

    return block


def _score(
    e: Generic,
    form: KVForm,
    queries: int,
    fetches: bool,
    table: Value,
    keys: Value,
    next_values: Value,
    dim: Value,
    scores: Value,
    first: Value,
    end: Value,
) -> None:
    """Dot products with keys `first` to `end`, multiples of eight; dims in full pieces."""
    if e.level.lanes == 2 * LANES:
        _score_pairs(e, form, queries, fetches, table, keys, next_values, dim, scores, first, end)
        return
    b, together, at_once, integers = e.b, e.level.lanes // queries, form.eights, form.kv_type in INTEGERS
    row = form.row_bytes(b, dim)
    q = [e.load(I64, table, ENTRY * i) for i in range(queries)]
    flat = variables(e, queries * together)
    totals = split(flat, together)
    with e.loop(b.udiv(b.sub(end, first), together)) as tile:
        key = e.at(first, tile, together)
        k = [e.at(keys, b.add(key, j), row) for j in range(together)]
        for total in flat:
            b.store(e.constant(V8F, 0.0), total)
        with e.loop(b.udiv(dim, LANES * at_once)) as piece:
            eight = b.mul(piece, at_once)
            if fetches:
                nbytes = at_once * form.bytes_of_eight * together
                fetch(e, e.at(b.add(next_values, b.sub(k[0], keys)), piece, nbytes), nbytes)
            if integers:
                int16.add_dots(e, form.kv_type, totals, q, [[each] for each in k], keys, key, dim, piece)
            else:
                queried = [e.load(V8F, e.at(each, eight, LANES * 4)) for each in q]
                multiplied(e, totals, queried, [form.load(e, each, eight, 1)[0] for each in k])
        sums = [e.sum_of_each([b.load(total) for total in few]) for few in split(flat, LANES)]
        at = e.at(scores, key, 4)
        for i in range(queries):
            which, lane = divmod(i * together, LANES)
            found = e.pick(sums[which], range(lane, lane + together))
            if integers:
                found = b.fmul(found, e.splat(int16.step_of_query(e, q[i], dim), together))
            e.store(found, at, ROW * i)


def _score_pairs(
    e: Generic,
    form: KVForm,
    queries: int,
    fetches: bool,
    table: Value,
    keys: Value,
    next_values: Value,
    dim: Value,
    scores: Value,
    first: Value,
    end: Value,
) -> None:
    """`_score` of keys by twos, side by side in vectors of sixteen lanes, each computed as in a vector of its own."""
    b, row, pairs, at_once, integers = e.b, form.row_bytes(e.b, dim), LANES // 2, form.eights, form.kv_type in INTEGERS
    q = [e.load(I64, table, ENTRY * i) for i in range(queries)]
    flat = variables(e, queries * pairs, WIDE)
    totals = split(flat, pairs)
    with e.loop(b.udiv(b.sub(end, first), LANES)) as tile:
        key = e.at(first, tile, LANES)
        k = [e.at(keys, b.add(key, j), row) for j in range(LANES)]
        for total in flat:
            b.store(e.constant(WIDE, 0.0), total)
        with e.loop(b.udiv(dim, LANES * at_once)) as piece:
            if fetches:
                nbytes = at_once * form.bytes_of_eight * LANES
                fetch(e, e.at(b.add(next_values, b.sub(k[0], keys)), piece, nbytes), nbytes)
            if integers:
                int16.add_dots(e, form.kv_type, totals, q, split(k, 2), keys, key, dim, piece)
            else:
                at = b.mul(piece, LANES * 4)
                queried = [e.load(V8F, b.add(each, at)) for each in q]
                multiplied(
                    e,
                    totals,
                    [e.join(each, each) for each in queried],
                    [form.load_two(e, even, odd, piece) for even, odd in split(k, 2)],
                )
        at = e.at(scores, key, 4)
        for i in range(0, queries, 2):  # lanes of a half: keys 0 2 4 6, or 1 3 5 7, of one query and of the next
            sums = e.sum_of_each([b.load(total) for total in (*totals[i], *totals[i + 1])])
            for j in range(2):
                found = e.pick(sums, [pairs * j + key // 2 + LANES * (key % 2) for key in range(LANES)])
                if integers:
                    found = b.fmul(found, e.splat(int16.step_of_query(e, q[i + j], dim)))
                e.store(found, at, ROW * (i + j))


def _score_transposed(e: Generic, queries: int, table: Value, keys: Value, dim: Value, scores: Value) -> None:
    """`_score` of all keys of a block, which are f32 and lie side by side, a row for each dim: a lane for each key. The dims that
    `_score` has in one lane are summed first, then those sums, in its order.
    """
    b, kind = e.b, vector(F32, e.level.lanes)
    q = [e.load(I64, table, ENTRY * i) for i in range(queries)]
    places = [*product(range(queries), range(0, ROW, 4 * e.level.lanes))]
    flat = [variables(e, len(places), kind) for _ in range(2)]

    def pair(numbers: Sequence[int]) -> list[Value]:
        """Sums over every eighth dim, from one number on and from another, which are added."""
        for total in (*flat[0], *flat[1]):
            b.store(e.constant(kind, 0.0), total)
        with e.loop(b.lshr(dim, 3)) as eight:
            row = e.at(keys, eight, LANES * ROW)
            at = b.mul(eight, LANES * 4)
            for number, sums in zip(numbers, flat, strict=True):
                right = [e.load(kind, row, ROW * number + place) for place in range(0, ROW, 4 * e.level.lanes)]
                left = [e.splat(e.load(F32, b.add(each, at), 4 * number), e.level.lanes) for each in q]
                multiplied(e, split(sums, len(right)), left, right)
        return [b.fadd(*map(b.load, each)) for each in zip(*flat, strict=True)]

    def added(numbers: Sequence[int]) -> list[Value]:
        if len(numbers) == 2:
            return pair(numbers)
        return [b.fadd(*each) for each in zip(added(numbers[0::2]), added(numbers[1::2]), strict=True)]

    for (i, place), total in zip(places, added([0, 1, 2, 3, 4, 5, 6, 7]), strict=True):
        e.store(total, scores, ROW * i + place)


def _weights(
    e: Generic,
    queries: int,
    softcap: bool,
    alibi: bool,
    relative: bool,
    table: Value,
    at: Value,
    stats: Value,
    scores: Value,
    scale: Value,
    cap: Value,
) -> None:
    """Scores become weights; each query's maximum and sum of weights follow. Keys that a query doesn't see score -inf."""
    b, n = e.b, e.level.lanes
    kind, integers, places = vector(F32, n), vector(I32, n), range(0, BLOCK, n)
    shrunk = []
    for i in range(queries):
        first, end = (e.splat(b.trunc(b.sub(e.load(I64, table, ENTRY * i + which), at), I32), n) for which in (8, 16))
        lanes = [e.constant(integers, list(range(place, place + n))) for place in places]
        seen = [b.and_(b.icmp_signed(">=", each, first), b.icmp_signed("<", each, end)) for each in lanes]
        # Eight by eight, as they were stored: a load of two stores would wait until both are in the cache.
        eights = [[e.load(V8F, scores, ROW * i + 4 * (place + eight)) for eight in range(0, n, LANES)] for place in places]
        values = [b.fmul(e.join_all(each), e.splat(scale, n)) for each in eights]
        if softcap:
            values = [_capped(e, value, cap) for value in values]
        if alibi:
            own, slope = e.splat(b.trunc(b.sub(e.load(I64, table, ENTRY * i + 24), at), I32), n), e.load(F32, table, ENTRY * i + 32)
            away = [e.smaller(b.sitofp(b.sub(each, own), kind), b.sitofp(b.sub(own, each), kind)) for each in lanes]
            values = [b.fadd(value, b.fmul(e.splat(slope, n), each)) for value, each in zip(values, away, strict=True)]
        if relative:
            rows = _relative(e, b.sub(at, e.load(I64, table, ENTRY * i + 24)), e.load(I64, table, ENTRY * i + 32), places)
            values = [b.fadd(value, bias) for value, bias in zip(values, rows, strict=True)]
        values = [b.select(mask, value, float("-inf")) for mask, value in zip(seen, values, strict=True)]
        for place, value in zip(places, values, strict=True):
            e.store(value, scores, ROW * i + 4 * place)
        before = e.load(F32, stats, 64 * i)
        maximum = e.larger(e.fold(functools.reduce(e.larger, values), e.larger), before)
        e.store(maximum, stats, 64 * i)
        shrunk.append(b.fsub(before, maximum))
    e.store(e.exp(e.pack(shrunk + [e.constant(F32, 0.0)] * (LANES - queries)), rises=False), scores, FACTORS)
    with e.loop(queries) as query:  # unrolled, constants and maxima of all would not fit the registers
        row, stat = e.at(scores, query, ROW), e.at(stats, query, 64)
        maximum = e.splat(e.load(F32, stat), n)
        total = b.fmul(e.load(V8F, stat, 32), e.splat(e.load(F32, e.at(scores, query, 4), FACTORS)))
        for place in places:
            weight = e.exp(b.fsub(e.load(kind, row, 4 * place), maximum), rises=False)
            e.store(weight, row, 4 * place)
            for eight in range(0, n, LANES):
                total = b.fadd(total, e.pick(weight, range(eight, eight + LANES)))
        e.store(total, stat, 32)


def _relative(e: Generic, away: Value, row: Value, places: Sequence[int]) -> list[Value]:
    """A head's biases for a block of keys, the first of which is so far `away` from the query."""
    b, found = e.b, []
    for place in places:
        first = b.add(away, place + RELATIVE_FIRST)
        first = b.select(b.icmp_signed("<", first, 0), 0, first)
        last = I64(RELATIVE_ROW - e.level.lanes)
        at = b.mul(b.select(b.icmp_signed(">", first, last), last, first), 4)
        found.append(e.load(vector(F32, e.level.lanes), b.add(row, at)))
    return found


def _capped(e: Generic, x: Value, cap: Value) -> Value:
    """cap * tanh(x / cap), with tanh(y) = 1 - 2 / (exp(2 y) + 1) for y within +-40, past which it is +-1."""
    b, kind = e.b, x.type
    one, caps = e.constant(kind, 1.0), e.splat(cap, kind.count)
    y = e.larger(e.smaller(b.fdiv(x, caps), e.constant(kind, 40.0)), e.constant(kind, -40.0))
    tanh = b.fsub(one, b.fdiv(2.0, b.fadd(e.exp(b.fadd(y, y)), one)))
    return b.fmul(caps, tanh)


def _weigh(
    e: Generic,
    form: KVForm,
    queries: int,
    fetches: bool,
    sums: Value,
    values: Value,
    next_keys: Value,
    dim: Value,
    value_row: Value,
    scores: Value,
    first: Value,
    end: Value,
) -> None:
    """Shrink the sums, add values `first` to `end`, `value_row` elements apart, times their weights; dims in multiples of eight."""
    if form.kv_type in INTEGERS:
        int16.weigh(e, form, queries, fetches, sums, values, next_keys, dim, value_row, scores)
        return
    b = e.b
    is_wide, most = e.level.lanes == 2 * LANES, e.level.lanes // queries  # two eights side by side
    eights, row = b.lshr(dim, 3), form.row_bytes(b, value_row)

    def tile(eight: Value, n: int) -> None:
        """The dims of n eights."""
        twice = 2 if is_wide and n > 1 else 1  # eights in a vector
        at, vectors, kind = b.mul(eight, LANES), n // twice, WIDE if twice > 1 else V8F
        places = [
            [e.at(sums, b.add(b.mul(dim, i), b.add(at, LANES * twice * j)), 4) for j in range(vectors)] for i in range(queries)
        ]
        totals = split(variables(e, queries * vectors, kind), vectors)
        factors = [e.splat(e.load(F32, scores, FACTORS + 4 * i), kind.count) for i in range(queries)]
        for i, j in product(range(queries), range(vectors)):
            b.store(b.fmul(e.load(kind, places[i][j]), factors[i]), totals[i][j])
        with cgutils.for_range_slice(b, first, end, I64(1)) as (key, _):
            right = form.load(e, e.at(values, key, row), eight, vectors, LANES * twice)
            if fetches:
                nbytes = n * form.bytes_of_eight
                place = e.at(b.mul(eight, BLOCK * form.bytes_of_eight), key, nbytes)
                fetch(e, b.add(next_keys, place), nbytes)
            weight = e.at(scores, key, 4)
            multiplied(e, totals, [e.splat(e.load(F32, weight, ROW * i), kind.count) for i in range(queries)], right)
        for i, j in product(range(queries), range(vectors)):
            e.store(b.load(totals[i][j]), places[i][j])

    done: Value = I64(0)
    for n in (2 * most, most, 2, 1) if is_wide else (most, 1):
        end_of_tiles = b.sub(eights, b.urem(b.sub(eights, done), n))
        with cgutils.for_range_slice(b, done, end_of_tiles, I64(n), inc=True) as (eight, _):
            tile(eight, n)
        done = end_of_tiles
