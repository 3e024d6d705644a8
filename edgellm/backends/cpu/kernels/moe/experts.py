"""Products of experts: each expert's rows of weights by the tokens that take it, through the kernel of an ordinary product.

In a step of one token threads share the rows of all its slots. In one of several, tokens are sorted by expert ("buckets"), and
threads share the rows of each expert. Either way a value is the same dot product, and sums run over experts in ascending order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.ops.moe import BUCKETS, EXPERTS
from edgellm.backends.cpu.simd import Isa, KernelFunction

BUCKET, PAIR, ROW_GROUP, PIECE = abi.BUCKET, abi.PAIR, abi.EXPERT_ROW_GROUP, abi.EXPERT_PIECE
RECORD_BYTES, WORK_HEAD = abi.RECORD_WORDS * 8, abi.EXPERT_WORK_HEAD


def build(variant: str, isa: Isa) -> KernelFunction:
    return {"buckets": _buckets, "rows": _rows, "sum": _sum}[variant](isa)


def _buckets(isa: Isa) -> KernelFunction:
    load_i64, load_i32, store_i32 = isa("load_i64 load_i32 store_i32")
    arguments = BUCKETS.reader(isa, "step chosen chosen_stride out experts k count")

    def buckets(op, ith, nth):
        step, chosen, chosen_stride, out, experts, k, count = arguments(op)
        tokens = load_i64(step, count * 8)
        if ith > 0 or tokens == 1:
            return
        for expert in range(experts):
            store_i32(out, expert * BUCKET + 4, 0)
        for token in range(tokens):
            for slot in range(k):
                at = load_i32(chosen, token * chosen_stride + slot * 4) * BUCKET + 4
                store_i32(out, at, load_i32(out, at) + 1)
        first = 0
        for expert in range(experts):
            store_i32(out, expert * BUCKET, first)
            first += load_i32(out, expert * BUCKET + 4)
            store_i32(out, expert * BUCKET + 4, 0)
        for token in range(tokens):
            for slot in range(k):
                expert = load_i32(chosen, token * chosen_stride + slot * 4)
                bucket = out + expert * BUCKET
                filled = load_i32(bucket, 4)
                pair = out + experts * BUCKET + (load_i32(bucket, 0) + filled) * PAIR
                store_i32(pair, 0, token)
                store_i32(pair, 4, slot)
                store_i32(pair, 8, expert)
                store_i32(bucket, 4, filled + 1)

    return buckets


def _product(isa: Isa) -> Any:
    """Some rows of one expert by rows of activations, through the kernel that the record names."""
    store_i64, call_kernel = isa("store_i64 call_kernel")
    arguments = EXPERTS.reader(isa, "kernel weights row_bytes expert_bytes k x_row_bytes bias bias_bytes scratch work")
    at_step = abi.STEP * 8
    at_weights, at_row_bytes, at_n, at_k, at_x, at_x_stride, at_out, at_out_stride, at_bias, at_scratch = MATMUL.offsets(
        "weights row_bytes n k x x_stride out out_stride bias scratch"
    )
    at_residual, at_count, at_full_tiles = MATMUL.offsets("residual count full_tiles")

    @inline
    def product(op, expert, row, rows, x, columns, out, out_stride):
        kernel, weights, row_bytes, expert_bytes, k, x_row_bytes, bias, bias_bytes, scratch, record = arguments(op)
        step = record + RECORD_BYTES
        store_i64(step, abi.N_TOKENS * 8, columns)
        store_i64(record, at_step, step)
        store_i64(record, at_count, abi.N_TOKENS)
        store_i64(record, at_residual, 0)
        store_i64(record, at_full_tiles, 1)  # the next expert's rows come after them
        store_i64(record, at_weights, weights + expert * expert_bytes + row * row_bytes)
        store_i64(record, at_row_bytes, row_bytes)
        store_i64(record, at_n, rows)
        store_i64(record, at_k, k)
        store_i64(record, at_x, x)
        store_i64(record, at_x_stride, x_row_bytes)
        store_i64(record, at_out, out)
        store_i64(record, at_out_stride, out_stride)
        store_i64(record, at_bias, bias + expert * bias_bytes + row * 4 if bias != 0 else 0)
        store_i64(record, at_scratch, scratch)
        call_kernel(kernel, record, 0, 1)

    return product


def _each_piece(isa: Isa, product: Any, use: Any) -> Any:
    """A step of several tokens: pieces of rows of each expert by all its tokens, into the thread's work, then `use` of them."""
    load_i32 = isa.load_i32
    arguments = EXPERTS.reader(isa, "n x x_row_bytes buckets experts work work_floats")

    @inline
    def each_piece(op, ith, nth):
        n, x, x_row_bytes, buckets, experts, work, work_floats = arguments(op)
        groups, pairs, sums = (n + ROW_GROUP - 1) // ROW_GROUP, buckets + experts * BUCKET, work + WORK_HEAD
        first, end = groups * ith // nth * ROW_GROUP, min(n, groups * (ith + 1) // nth * ROW_GROUP)
        for expert in range(experts):
            begin, columns = load_i32(buckets, expert * BUCKET), load_i32(buckets, expert * BUCKET + 4)
            if columns > 0:
                step = max(work_floats // columns // PIECE, 1) * PIECE
                for row in range(first, end, step):
                    rows = min(step, end - row)
                    product(op, expert, row, rows, x + begin * x_row_bytes, columns, sums, rows * 4)
                    for column in range(columns):
                        pair = pairs + (begin + column) * PAIR
                        use(op, load_i32(pair, 0), load_i32(pair, 4), expert, row, rows, sums + column * rows * 4)

    return each_piece


def _rows(isa: Isa) -> KernelFunction:
    """Every slot's product, in the slot's own columns."""
    load_i64, load_i32, load_f32, store_f32 = isa("load_i64 load_i32 load_f32 store_f32")
    load, store = isa("load_f32x8 store_f32x8")
    product = _product(isa)
    arguments = EXPERTS.reader(isa, "step n x x_row_bytes x_slots out slots chosen count unit")
    to_place = EXPERTS.reader(isa, "n out out_stride")

    @inline
    def copy(op, token, slot, expert, row, rows, source):
        n, out, out_stride = to_place(op)
        target, i = out + token * out_stride + (slot * n + row) * 4, 0
        while i + 8 <= rows:
            store(target, i * 4, load(source, i * 4))
            i += 8
        while i < rows:
            store_f32(target, i * 4, load_f32(source, i * 4))
            i += 1

    each_piece = _each_piece(isa, product, copy)

    def expert_rows(op, ith, nth):
        step, n, x, x_row_bytes, x_slots, out, slots, chosen, count, unit = arguments(op)
        if load_i64(step, count * 8) != 1:
            if load_i64(step, count * 8) > 1:
                each_piece(op, ith, nth)
            return
        units = slots * n // unit
        at, end = units * ith // nth * unit, units * (ith + 1) // nth * unit
        while at < end:
            slot, row = at // n, at % n
            rows = min(end - at, n - row)
            product(op, load_i32(chosen, slot * 4), row, rows, x + slot * x_slots * x_row_bytes, 1, out + at * 4, 0)
            at += rows

    return expert_rows


def _sum(isa: Isa) -> KernelFunction:
    """The slots' products, weighted and added in the order of slots, which is that of experts."""
    load_i64, load_i32, load_f32, store_f32 = isa("load_i64 load_i32 load_f32 store_f32")
    load, store, add, mul, splat = isa("load_f32x8 store_f32x8 add_f32x8 mul_f32x8 splat_f32x8")
    product = _product(isa)
    arguments = EXPERTS.reader(isa, "step n x x_row_bytes slots chosen count work unit")
    to_place = EXPERTS.reader(isa, "out out_stride gates gates_stride")

    @inline
    def accumulate(op, token, slot, expert, row, rows, source):
        out, out_stride, gates, gates_stride = to_place(op)
        target, i = out + token * out_stride + row * 4, 0
        weight = load_f32(gates, token * gates_stride + expert * 4)
        while i + 8 <= rows:
            value = mul(splat(weight), load(source, i * 4))
            store(target, i * 4, value if slot == 0 else add(load(target, i * 4), value))
            i += 8
        while i < rows:
            value = np.float32(weight * load_f32(source, i * 4))
            store_f32(target, i * 4, value if slot == 0 else np.float32(load_f32(target, i * 4) + value))
            i += 1

    each_piece = _each_piece(isa, product, accumulate)

    def expert_sum(op, ith, nth):
        step, n, x, x_row_bytes, slots, chosen, count, work, unit = arguments(op)
        if load_i64(step, count * 8) != 1:
            if load_i64(step, count * 8) > 1:
                each_piece(op, ith, nth)
            return
        units, sums = n // unit, work + WORK_HEAD
        row = units * ith // nth * unit
        rows = units * (ith + 1) // nth * unit - row
        if rows > 0:
            for slot in range(slots):
                expert = load_i32(chosen, slot * 4)
                product(op, expert, row, rows, x + slot * x_row_bytes, 1, sums, 0)
                accumulate(op, 0, slot, expert, row, rows, sums)

    return expert_sum
