"""RWKV-6's state of a head (dim of k, dim of v), whose rows decay by factors that depend on the token.

Threads share heads; tokens follow each other. Columns of a state, which are dims of values, lie in blocks of sixteen or eight: a
row of them for each dim of a key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.recurrent.exp2 import LEAST, exp2_of
from edgellm.backends.cpu.ops.rwkv import WKV6
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.ops.rwkv import STRONGEST

ONE = np.float32(1.0)
LOG2_E = np.float32(math.log2(math.e))
VECTORS = {"wide": 2, "narrow": 1}  # of eight columns in a block
DECAYS, KEYS, READS = range(3)  # rows of scratch


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, width = isa.load_i64, 8 * VECTORS[variant]
    prepare, change = _prepare(isa), _change(isa, VECTORS[variant])
    arguments = WKV6.reader(isa, "step v v_stride out out_stride heads kv_heads dim targets state_at scratch")

    def wkv6(op, ith, nth):
        step, v, v_stride, out, out_stride, heads, kv_heads, dim, targets, state_at, scratch = arguments(op)
        row, tokens = dim * 4, load_i64(step, abi.N_TOKENS * 8)
        for head in range(first_item(1, heads, ith, nth), first_item(1, heads, ith + 1, nth)):
            state, of_values = state_at + head * dim * row, head * kv_heads // heads * row
            for token in range(tokens):
                before, after = load_i64(targets, token * 16) + state, load_i64(targets, token * 16 + 8) + state
                taken = prepare(op, head, token, scratch)
                values, target = v + token * v_stride + of_values, out + token * out_stride + head * row
                for j in range(0, dim, width):
                    change(before + j * row, after + j * row, scratch, values + j * 4, target + j * 4, dim, taken)

    return wkv6


def _prepare(isa: Isa) -> Any:
    """The rows of scratch for a token of a head; what is returned is the factor of its values in what is read."""
    load, store, splat, sub, mul, fma = isa("load_f32x8 store_f32x8 splat_f32x8 sub_f32x8 mul_f32x8 fma_f32x8")
    zero, hsum, larger = isa("zero_f32x8 hsum_f32x8 larger_f32x8")
    exp2 = exp2_of(isa)
    strongest, none = np.float32(STRONGEST) * LOG2_E, np.float32(LEAST)
    arguments = WKV6.reader(isa, "r r_stride w w_stride k k_stride first heads kv_heads dim")

    @inline
    def prepare(op, head, token, rows):
        r, r_stride, w, w_stride, k, k_stride, first, heads, kv_heads, dim = arguments(op)
        row, at = dim * 4, head * dim * 4
        r, w, k = r + token * r_stride + at, w + token * w_stride + at, k + token * k_stride + head * kv_heads // heads * row
        scale, least, taken = splat(ONE / np.sqrt(np.float32(dim))), splat(none if first else strongest), zero()
        for j in range(0, row, 32):
            decay = exp2(larger(least, mul(splat(-LOG2_E), exp2(mul(load(w, j), splat(LOG2_E))))))
            key, read = load(k, j), load(r, j)
            store(rows, DECAYS * row + j, decay)
            if first:
                taken = fma(mul(read, load(first, at + j)), key, taken)
                store(rows, READS * row + j, read)
            else:
                key, read = mul(key, sub(splat(ONE), decay)), mul(read, scale)
                taken = fma(read, key, taken)
                store(rows, READS * row + j, mul(read, decay))
            store(rows, KEYS * row + j, key)
        return hsum(taken)

    return prepare


def _change(isa: Isa, vectors: int) -> Any:
    """A token's change of a block, and what its receptance reads: (before, after, scratch, values, out, dim, taken)."""

    def emit(e: Generic, before: Any, after: Any, scratch: Any, values: Any, out: Any, dim: Any, taken: Any) -> None:
        b = e.b
        value = [e.load(V8F, values, 32 * i) for i in range(vectors)]
        reads = [cgutils.alloca_once_value(b, e.constant(V8F, 0.0)) for _ in value]
        with e.loop(dim) as index:
            at, row = b.mul(index, 4), b.mul(index, 32 * vectors)
            decay, key, read = (e.splat(e.load(F32, e.at(b.add(scratch, at), dim, 4 * number))) for number in (DECAYS, KEYS, READS))
            for i in range(vectors):
                s = e.load(V8F, b.add(before, row), 32 * i)
                b.store(e.fma(read, s, b.load(reads[i])), reads[i])
                e.store(e.fma(key, value[i], b.fmul(s, decay)), b.add(after, row), 32 * i)
        for i in range(vectors):
            e.store(e.fma(e.splat(taken), value[i], b.load(reads[i])), out, 32 * i)

    return isa.make("change", types.void, (*(types.int64,) * 6, types.float32), emit)
