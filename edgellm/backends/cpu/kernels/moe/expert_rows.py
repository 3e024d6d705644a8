"""Rows of activations in the order of the experts that they go to, each expert's as `quantise` would lay them out, or as f32.

A step of one token has no need of an order: its slots come one after the other, or one row where all slots have the same.
"""

from __future__ import annotations

from typing import Any

from edgellm.backends.cpu.abi import BUCKET, PAIR
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.matmul.quantise import block_writer
from edgellm.backends.cpu.ops.moe import EXPERT_ROWS
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.traits import BLOCK


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32 = isa("load_i64 load_i32")
    write_row = _float_row(isa) if variant == "f32" else _quantised_row(variant, isa)
    arguments = EXPERT_ROWS.reader(isa, "step x x_stride slot_bytes k out row_bytes slots buckets experts count")

    def rows(op, ith, nth):
        step, x, x_stride, slot_bytes, k, out, row_bytes, slots, buckets, experts, count = arguments(op)
        tokens = load_i64(step, count * 8)
        if tokens == 1:
            n = slots if slot_bytes else 1
            for row in range(n * ith // nth, n * (ith + 1) // nth):
                write_row(x + row * slot_bytes, k, out, row_bytes, row, 1)
        else:
            n, pairs = tokens * slots, buckets + experts * BUCKET
            for row in range(n * ith // nth, n * (ith + 1) // nth):
                pair = pairs + row * PAIR
                bucket = buckets + load_i32(pair, 8) * BUCKET
                begin, columns = load_i32(bucket, 0), load_i32(bucket, 4)
                source = x + load_i32(pair, 0) * x_stride + load_i32(pair, 4) * slot_bytes
                write_row(source, k, out + begin * row_bytes, row_bytes, row - begin, columns)

    return rows


def _quantised_row(variant: str, isa: Isa) -> Any:
    write = block_writer(variant, isa, full_tiles=True)

    @inline
    def quantised(source, k, out, row_bytes, row, rows):
        for block in range(k // BLOCK):
            write(source + block * BLOCK * 4, out, row_bytes, row, rows, block, k // BLOCK)

    return quantised


def _float_row(isa: Isa) -> Any:
    load_f32, store_f32 = isa("load_f32 store_f32")

    @inline
    def floats(source, k, out, row_bytes, row, rows):
        for i in range(k):
            store_f32(out, row * row_bytes + i * 4, load_f32(source, i * 4))

    return floats
