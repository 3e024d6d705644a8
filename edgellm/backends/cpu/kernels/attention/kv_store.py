"""Writes the keys and values of this step into their pages: [kv head][slot][dim], in one of the forms of kv_rows.py.

Keys that hold their values are written once."""

from __future__ import annotations

from edgellm.backends.cpu.kernels.attention import kv_rows
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.ops.attention import KV_STORE
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, put, row_bytes = isa.load_i64, kv_rows.put(variant, isa), kv_rows.row(variant)
    K, K_STRIDE, V, V_STRIDE, TARGETS = KV_STORE.offsets("k k_stride v v_stride targets")
    KEYS_AT, VALUES_AT, N_KV, DIM_K, DIM_V = KV_STORE.offsets("keys_at values_at n_kv dim_k dim_v")

    def kv_store(op, ith, nth):
        k, k_stride, v, v_stride = load_i64(op, K), load_i64(op, K_STRIDE), load_i64(op, V), load_i64(op, V_STRIDE)
        n_kv, dim_k, dim_v = load_i64(op, N_KV), load_i64(op, DIM_K), load_i64(op, DIM_V)
        own_values = load_i64(op, VALUES_AT) != load_i64(op, KEYS_AT)
        rows = load_i64(load_i64(op, 8), 0)
        for item in range(first_item(rows, n_kv, ith, nth), first_item(rows, n_kv, ith + 1, nth)):
            row, head = item // n_kv, item % n_kv
            target = load_i64(op, TARGETS) + row * 24
            page, slot, slots = load_i64(target, 0), load_i64(target, 8), load_i64(target, 16)
            at = head * slots + slot
            put(k + row * k_stride + head * dim_k * 4, page + load_i64(op, KEYS_AT) * slots + at * row_bytes(dim_k), dim_k)
            if own_values:
                put(v + row * v_stride + head * dim_v * 4, page + load_i64(op, VALUES_AT) * slots + at * row_bytes(dim_v), dim_v)

    return kv_store
