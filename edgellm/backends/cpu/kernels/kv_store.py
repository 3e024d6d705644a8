"""Writes the keys and values of this step into their slots: [kv head][slot][dim], f32 or f16."""
from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu.kernels._inline import inline
from edgellm.backends.cpu.kernels._share import first_item
from edgellm.backends.cpu.simd import Isa


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_i32, load_f32 = isa.load_i64, isa.load_i32, isa.load_f32
    load, store = isa.load_f32x8, {"f32": isa.store_f32x8, "f16": isa.store_f16x8}[variant]
    store_one, size = {"f32": (isa.store_f32, 4), "f16": (isa.store_f16, 2)}[variant]

    @inline
    def put(source, target, dim):
        j = 0
        while j + 8 <= dim:
            store(target, j * size, load(source, j * 4))
            j += 8
        while j < dim:
            store_one(target, j * size, load_f32(source, j * 4))
            j += 1

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
            put(k + row * k_stride + head * dim_k * 4, keys + at * dim_k * size, dim_k)
            put(v + row * v_stride + head * dim_v * 4, values + at * dim_v * size, dim_v)

    return kv_store
