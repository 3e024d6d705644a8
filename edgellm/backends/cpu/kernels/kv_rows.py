"""The forms of keys and values as kernels see them: bytes of a row, writing a row, and widening rows of "q8_0" to f32."""
from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

import numpy as np
from numba import types

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels._inline import inline, outline
from edgellm.backends.cpu.simd import F32X8, Isa
from edgellm.backends.cpu.simd.base import F32, I8, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic
from edgellm.memory.kv_types import BLOCK, SCALE_BYTES

LARGEST = np.float32(127)
V8B = vector(I8, 8)


def row(variant: str) -> Any:
    """row(dim): bytes of a row, as memory/kv_types.py has it."""
    size = {"f32": 4, "f16": 2, "q8_0": 1}[variant]

    @inline
    def plain(dim):
        return dim * size

    @inline
    def scaled(dim):
        return dim + (dim + BLOCK - 1) // BLOCK * SCALE_BYTES

    return scaled if variant == "q8_0" else plain


def put(variant: str, isa: Isa) -> Any:
    """put(source, target, dim): one row of f32 into the cache."""
    return _put_codes(isa) if variant == "q8_0" else _put_floats(variant, isa)


def _put_floats(variant: str, isa: Isa) -> Any:
    load, load_f32, store = isa.load_f32x8, isa.load_f32, {"f32": isa.store_f32x8, "f16": isa.store_f16x8}[variant]
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

    return put


def _put_codes(isa: Isa) -> Any:
    """A block's scale is its largest value / 127 as f16, by which its values are divided. What is no finite number makes the scale
    one that is none either, so that it shows in the result.
    """
    load_f32, store_f16, load_f16 = isa.load_f32, isa.store_f16, isa.load_f16
    store_code = isa.make("store_code", types.void, (types.int64, types.float32), _store_code)

    @outline
    def put(source, target, dim):
        scale = target + dim
        for first in range(0, dim, BLOCK):
            top, odd = np.float32(0), np.float32(0)
            for j in range(first, min(first + BLOCK, dim)):
                x = load_f32(source, j * 4)
                top, odd = max(top, abs(x)), odd + (x - x)
            store_f16(scale, 0, top / LARGEST + odd)
            d = load_f16(scale, 0)
            inverse = np.float32(1) / d if d > 0 else np.float32(0)
            for j in range(first, min(first + BLOCK, dim)):
                store_code(target + j, load_f32(source, j * 4) * inverse)
            scale += SCALE_BYTES

    return put


def _store_code(e: Generic, address: Any, value: Any) -> None:
    """One value, rounded to the nearest of -127..127; anything for what is no number."""
    bounded = e.larger(e.smaller(e.splat(value), e.constant(V8F, 127.0)), e.constant(V8F, -127.0))
    e.store(e.b.trunc(e.lane(e.nearest(bounded)[1], 0), I8), address)


def widen(isa: Isa) -> Any:
    """widen(rows, dim, target): a block of keys or values in "q8_0", row by row, as f32 without gaps."""
    load_f16, load_i8, mul, splat = isa.load_f16, isa.load_i8, isa.mul_f32x8, isa.splat_f32x8
    store, store_f32, bytes_of_row = isa.store_f32x8, isa.store_f32, row("q8_0")
    load_codes = isa.make("load_codes", F32X8, (types.int64,), _load_codes)

    @outline
    def widen(rows, dim, target):
        for _ in range(abi.ATTENTION_BLOCK):
            j = 0
            while j + 8 <= dim:
                d = load_f16(rows, dim + j // BLOCK * SCALE_BYTES)
                store(target, j * 4, mul(load_codes(rows + j), splat(d)))
                j += 8
            while j < dim:
                d = load_f16(rows, dim + j // BLOCK * SCALE_BYTES)
                store_f32(target, j * 4, np.float32(load_i8(rows, j)) * d)
                j += 1
            rows += bytes_of_row(dim)
            target += dim * 4

    return widen


def _load_codes(e: Generic, address: Any) -> Any:
    return e.b.sitofp(e.b.sext(e.load(V8B, address), V8I), vector(F32, 8))
