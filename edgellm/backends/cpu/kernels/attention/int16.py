"""The products of attention with keys and values in quants, as IR: of i16, for attention_block.py. Queries and weights are rounded.

A block of dims has a scale. At ISA levels with sixteen float lanes two rows of quants lie side by side, or a full block of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels.attention import kv_quants
from edgellm.backends.cpu.kernels.attention.kv_forms import INT16, KVForm
from edgellm.backends.cpu.kernels.attention.parts import BLOCK, FACTORS, LANES, ROW, fetch, split, variables
from edgellm.backends.cpu.kernels.prefetch import LINE
from edgellm.backends.cpu.simd.base import F32, I16, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic

LARGEST_WEIGHT = 32767.0  # sums of 32 products with bytes fit i32


def step_of_query(e: Generic, query: Value, dim: Value) -> Value:
    """The step of a query's i16 values: see kv_quants.query_to_int16."""
    return e.load(F32, e.at(query, dim, 2))


def add_dots(
    e: Generic,
    kv_type: str,
    totals: Sequence[Sequence[Value]],
    queries: Sequence[Value],
    keys: Sequence[Sequence[Value]],
    rows: Value,
    first: Value,
    dim: Value,
    block: Value,
) -> None:
    """totals[i][j] += the products of query i, in i16, with the keys j over a block of dims, which lie side by side, eight lanes
    each. They follow each other, from key `first` on of those at `rows`.
    """
    b, n = e.b, len(keys[0])
    at, lanes = b.mul(block, 2 * kv_quants.BLOCK), LANES * n
    quantised = [[e.load(vector(I16, 16), b.add(each, at), 32 * half) for half in (0, 1)] for each in queries]
    scales = kv_quants.int16_scale_at(e, BLOCK, rows, dim, block, first)
    for j, each in enumerate(keys):
        quants = kv_quants.as_int16(e, kv_type, each, block)
        if kv_type == INT16:
            scale = e.pick(e.load(vector(F32, n), scales, 4 * n * j), [key for key in range(n) for _ in range(LANES)])
        else:
            scale = e.from_f16(e.join_all([e.splat(e.load(I16, kv_quants.scale_at(e, kv_type, key, dim, block))) for key in each]))
        for i, query in enumerate(quantised):
            pairs = [(quant, e.join_all([half] * n)) for quant, half in zip(quants, query, strict=True)]
            dot = b.sitofp(e.dot_int16(pairs, e.constant(vector(I32, lanes), 0)), vector(F32, lanes))
            b.store(e.fma(dot, scale, b.load(totals[i][j])), totals[i][j])


def weigh(
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
) -> None:
    """`_weigh` of all values of a block, in quants. Weights times scales are rounded to i16: two keys are then added at a time."""
    b, row, nbytes, lanes = e.b, form.row_bytes(e.b, value_row), 8 * form.bytes_of_eight, e.level.lanes
    parts = list(range(kv_quants.BLOCK // (2 * lanes)))  # of a block of dims, a vector of i16 each
    at_once = [parts] if 2 * queries * len(parts) <= e.level.lanes else [[part] for part in parts]  # sums fit registers
    kept = cgutils.alloca_once(b, ir.ArrayType(I16, BLOCK), queries)
    kept.align = LINE
    weights = b.ptrtoint(kept, I64)
    sides = [[first + side + i // 2 + i % 2 * 2 * lanes for first in range(0, 2 * lanes, 8) for i in range(8)] for side in (0, 4)]
    with e.loop(b.lshr(dim, 5)) as block:
        scales = _scales(e, form, values, row, value_row, block)
        steps = [_rounded_weights(e, b.add(scores, ROW * i), scales, b.add(weights, 2 * BLOCK * i)) for i in range(queries)]
        for here in at_once:
            flat = variables(e, queries * 2 * len(here), vector(I32, lanes))
            for total in flat:
                b.store(e.constant(vector(I32, lanes), 0), total)
            with e.loop(BLOCK // 2) as pair:
                key = e.at(values, pair, b.shl(row, 1))
                even, odd = (kv_quants.block_as_int16(e, form.kv_type, at, block, 2 * lanes) for at in (key, b.add(key, row)))
                if fetches and here[0] == 0:
                    place = b.add(b.mul(block, BLOCK // 2), pair)
                    fetch(e, e.at(next_keys, place, nbytes), nbytes)
                twos = [e.shuffle(even[part], odd[part], side) for part in here for side in sides]
                for i, totals in enumerate(split(flat, len(twos))):
                    weight = e.load(I32, b.add(weights, b.shl(pair, 2)), 2 * BLOCK * i)
                    both = e.cast(e.splat(weight, lanes), twos[0].type)
                    for two, total in zip(twos, totals, strict=True):
                        b.store(e.dot_int16([(two, both)], b.load(total)), total)
            for i, totals in enumerate(split(flat, 2 * len(here))):
                row_of_sums = e.at(sums, e.at(b.mul(dim, i), block, BLOCK), 4)
                factor = e.splat(e.load(F32, scores, FACTORS + 4 * i), lanes)
                for part, both in zip(here, split([b.load(total) for total in totals], 2), strict=True):
                    for half in (0, 1):  # both: sums of the first four of every eight quants, of the others
                        fours = [half * lanes // 2 + side + first for first in range(0, lanes // 2, 4) for side in (0, lanes)]
                        added = e.shuffle(both[0], both[1], [four + i for four in fours for i in range(4)])
                        place = 4 * lanes * (2 * part + half)
                        before = b.fmul(e.load(vector(F32, lanes), row_of_sums, place), factor)
                        e.store(e.fma(b.sitofp(added, before.type), steps[i], before), row_of_sums, place)


def _scales(e: Generic, form: KVForm, values: Value, row: Value, value_row: Value, block: Value) -> list[Value]:
    """f32 of the scales of a block of dims, of all keys."""
    lanes = e.level.lanes
    if form.kv_type == INT16:
        at = kv_quants.int16_scale_at(e, BLOCK, values, value_row, block, I64(0))
        return [e.load(vector(F32, lanes), at, 4 * place) for place in range(0, BLOCK, lanes)]
    first = kv_quants.scale_at(e, form.kv_type, values, value_row, block)
    halves = [e.load(I16, e.at(first, row, key)) for key in range(BLOCK)]
    return [e.from_f16(e.pack(halves[at : at + lanes])) for at in range(0, BLOCK, lanes)]


def _rounded_weights(e: Generic, scores: Value, scales: Sequence[Value], to: Value) -> Value:
    """A query's weights times scales as i16 to `to`; what they are multiples of, in all lanes."""
    b, kind = e.b, scales[0].type
    weights, none = [e.load(kind, scores, 4 * place) for place in range(0, BLOCK, kind.count)], e.constant(kind, 0.0)
    exact = [
        b.select(b.fcmp_unordered("!=", weight, none), b.fmul(weight, scale), none)  # what nobody sees may be anything
        for weight, scale in zip(weights, scales, strict=True)
    ]
    step, inverse = kv_quants.step_of(e, exact, LARGEST_WEIGHT)
    rounded = [kv_quants.rounded(e, each, inverse, LARGEST_WEIGHT) for each in exact]
    for half, parts in enumerate(split(rounded, len(rounded) // 2)):
        e.store(b.trunc(e.join_all(parts), vector(I16, 16)), to, 32 * half)
    return e.splat(step, kind.count)
