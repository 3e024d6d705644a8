"""Writes the keys and values of this step into their slots: [kv head][slot][dim], in one of the forms of kv_rows.py."""
from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu.kernels import kv_rows
from edgellm.backends.cpu.kernels._partition import first_item
from edgellm.backends.cpu.simd import Isa


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_i32, put, row_bytes = isa.load_i64, isa.load_i32, kv_rows.put(variant, isa), kv_rows.row(variant)

    def kv_store(op, ith, nth):
        step, k, k_stride, v, v_stride = load_i64(op, 8), load_i64(op, 16), load_i64(op, 24), load_i64(op, 32), load_i64(op, 40)
        spans, layer, n_kv, dim_k, dim_v, slots = (load_i64(op, 48), load_i64(op, 56), load_i64(op, 64), load_i64(op, 72),
                                                   load_i64(op, 80), load_i64(op, 88))
        table = load_i64(step, 16)
        keys, values = load_i64(table, layer * 16), load_i64(table, layer * 16 + 8)
        rows = load_i64(step, 0)
        for item in range(first_item(rows, n_kv, ith, nth), first_item(rows, n_kv, ith + 1, nth)):
            row, head = item // n_kv, item % n_kv
            at = head * slots + load_i32(spans, row * 16)
            put(k + row * k_stride + head * dim_k * 4, keys + at * row_bytes(dim_k), dim_k)
            put(v + row * v_stride + head * dim_v * 4, values + at * row_bytes(dim_v), dim_v)

    return kv_store
