"""Rows that have a piece for each head: rounded for products head by head, multiplied by each head's matrix or factor, and
joined.

In a step of one token threads share heads. In one of several they share rows of activations, or rows of all heads' matrices.
"""

from __future__ import annotations

from typing import Any

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.matmul.quantise import block_writer
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.rowwise.rows import scaled_of
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.ops.heads import HEAD_PRODUCTS, HEAD_ROWS, HEAD_SCALE, JOIN
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.traits import BLOCK

ROW_GROUP = abi.EXPERT_ROW_GROUP  # rows of a matrix that threads share together


def build(variant: str, isa: Isa) -> KernelFunction:
    others = {"products": _products, "join": _join, "scale": _scale}
    return others[variant](isa) if variant in others else _rows(variant, isa)


def _rows(variant: str, isa: Isa) -> KernelFunction:
    """Each head's rows as `quantise` would lay them out."""
    load_i64, write = isa.load_i64, block_writer(variant, isa)
    arguments = HEAD_ROWS.reader(isa, "step x x_stride k out row_bytes head_bytes heads count")

    def rows(op, ith, nth):
        step, x, x_stride, k, out, row_bytes, head_bytes, heads, count = arguments(op)
        tokens, filled = load_i64(step, count * 8), k // BLOCK
        for item in range(first_item(tokens, heads, ith, nth), first_item(tokens, heads, ith + 1, nth)):
            token, head = item // heads, item % heads
            source = x + token * x_stride + head * k * 4
            for block in range(filled):
                write(source + block * BLOCK * 4, out + head * head_bytes, row_bytes, token, tokens, block, filled)

    return rows


def _products(isa: Isa) -> KernelFunction:
    load_i64, product = isa.load_i64, _product(isa)
    arguments = HEAD_PRODUCTS.reader(isa, "step n heads count")

    def products(op, ith, nth):
        step, n, heads, count = arguments(op)
        groups = (n + ROW_GROUP - 1) // ROW_GROUP if load_i64(step, count * 8) > 1 else 1
        rows_of_group = ROW_GROUP if groups > 1 else n
        at, end = heads * groups * ith // nth, heads * groups * (ith + 1) // nth
        while at < end:
            head, group = at // groups, at % groups
            last = min(groups, group + end - at)
            product(op, head, group * rows_of_group, min(n, last * rows_of_group))
            at += last - group

    return products


def _product(isa: Isa) -> Any:
    """Rows first..end of one head's matrix, through the kernel that the record names."""
    store_i64, call_kernel = isa("store_i64 call_kernel")
    arguments = HEAD_PRODUCTS.reader(
        isa, "step kernel weights row_bytes head_bytes n k x x_stride x_head_bytes out out_stride count scratch work"
    )
    at_step = abi.STEP * 8
    at_weights, at_row_bytes, at_n, at_k, at_x, at_x_stride, at_out, at_out_stride = MATMUL.offsets(
        "weights row_bytes n k x x_stride out out_stride"
    )
    at_bias, at_residual, at_count, at_scratch, at_full_tiles = MATMUL.offsets("bias residual count scratch full_tiles")

    @inline
    def product(op, head, first, end):
        (step, kernel, weights, row_bytes, head_bytes, n, k, x, x_stride, x_head_bytes, out, out_stride, count, scratch, record) = (
            arguments(op)
        )
        store_i64(record, at_step, step)
        store_i64(record, at_weights, weights + head * head_bytes + first * row_bytes)
        store_i64(record, at_row_bytes, row_bytes)
        store_i64(record, at_n, end - first)
        store_i64(record, at_k, k)
        store_i64(record, at_x, x + head * x_head_bytes)
        store_i64(record, at_x_stride, x_stride)
        store_i64(record, at_out, out + (head * n + first) * 4)
        store_i64(record, at_out_stride, out_stride)
        store_i64(record, at_bias, 0)
        store_i64(record, at_residual, 0)
        store_i64(record, at_count, count)
        store_i64(record, at_scratch, scratch)
        store_i64(record, at_full_tiles, 0)
        call_kernel(kernel, record, 0, 1)

    return product


def _scale(isa: Isa) -> KernelFunction:
    load_i64, load_f32 = isa("load_i64 load_f32")
    scaled = scaled_of(isa)
    arguments = HEAD_SCALE.reader(isa, "step x x_stride factors factors_stride out out_stride heads n count")

    def scale(op, ith, nth):
        step, x, x_stride, factors, factors_stride, out, out_stride, heads, n, count = arguments(op)
        rows = load_i64(step, count * 8)
        for item in range(first_item(rows, heads, ith, nth), first_item(rows, heads, ith + 1, nth)):
            row, head = item // heads, item % heads
            source, target = x + row * x_stride + head * n * 4, out + row * out_stride + head * n * 4
            scaled(source, target, 0, n, load_f32(factors + row * factors_stride, head * 4))

    return scale


def _join(isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32, load, store = isa("load_i64 load_f32 store_f32 load_f32x8 store_f32x8")
    arguments = JOIN.reader(isa, "step a a_stride b b_stride out out_stride heads n_a n_b b_step count")

    @inline
    def copy(source, target, n):
        j = 0
        while j + 8 <= n:
            store(target, j * 4, load(source, j * 4))
            j += 8
        while j < n:
            store_f32(target, j * 4, load_f32(source, j * 4))
            j += 1

    def join(op, ith, nth):
        step, a, a_stride, b, b_stride, out, out_stride, heads, n_a, n_b, b_step, count = arguments(op)
        rows = load_i64(step, count * 8)
        for item in range(first_item(rows, heads, ith, nth), first_item(rows, heads, ith + 1, nth)):
            row, head = item // heads, item % heads
            target = out + row * out_stride + head * (n_a + n_b) * 4
            copy(a + row * a_stride + head * n_a * 4, target, n_a)
            copy(b + row * b_stride + head * b_step, target + n_a * 4, n_b)

    return join
