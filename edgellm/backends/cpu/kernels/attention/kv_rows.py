"""The forms of keys and values as kernels see them: bytes of a row, writing a row, and widening rows of quants to f32."""

from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

import numpy as np
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.attention import kv_quants, rotation
from edgellm.backends.cpu.kernels.inline import inline, outline
from edgellm.backends.cpu.kernels.prefetch import LINE
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import I8, I16, I32, I64, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.memory.kv_types import BLOCK, QUANTISED, SCALE_BYTES

i64, void = types.int64, types.void


def row(variant: str) -> Any:
    """row(dim): bytes of a row, as memory/kv_types.py defines it."""
    size, quants = {"f32": 4, "f16": 2}.get(variant, 0), quant_bytes(variant)

    @inline
    def plain(dim):
        return dim * size

    @inline
    def scaled(dim):
        return quants(dim) + (dim + BLOCK - 1) // BLOCK * SCALE_BYTES

    return scaled if variant in QUANTISED else plain


def quant_bytes(variant: str) -> Any:
    """code_bytes(dim): bytes of a row's quants, behind which its scales stand."""
    packed = variant == "q4_0"

    @inline
    def quant_bytes(dim):
        return (dim + BLOCK - 1) // BLOCK * (BLOCK // 2) if packed else dim

    return quant_bytes


def put(variant: str, isa: Isa) -> Any:
    """put(source, target, dim): one row of f32 into the cache."""
    return _put_quants(variant, isa) if variant in QUANTISED else _put_floats(variant, isa)


def _put_floats(variant: str, isa: Isa) -> Any:
    load, load_f32 = isa("load_f32x8 load_f32")
    store = {"f32": isa.store_f32x8, "f16": isa.store_f16x8}[variant]
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


def _put_quants(variant: str, isa: Isa) -> Any:
    """Blocks are rotated in memory of their own, and rounded there; the last may be filled up with zeros."""
    load_f32, store_f32, load_u8, store_i8 = isa("load_f32 store_f32 load_u8 store_i8")
    rotate, quants, halves = rotation.rotate(isa), quant_bytes(variant), variant == "q4_0"
    room = isa.make("room", i64, (), _room)
    write = isa.make("write", void, (i64, i64, i64), lambda e, *at: kv_quants.write(e, variant, *at))

    @outline
    def put(source, target, dim):
        spare = room()
        scale, rounded = target + quants(dim), spare + BLOCK * 4
        for first in range(0, dim, BLOCK):
            n = min(BLOCK, dim - first)
            for j in range(n):
                store_f32(spare, j * 4, load_f32(source, (first + j) * 4))
            for j in range(n, BLOCK):
                store_f32(spare, j * 4, np.float32(0))
            rotate(spare, n)
            if halves:
                write(spare, target + first // 2, scale)
            elif n == BLOCK:
                write(spare, target + first, scale)
            else:
                write(spare, rounded, scale)
                for j in range(n):
                    store_i8(target, first + j, load_u8(rounded, j))
            scale += SCALE_BYTES

    return put


def _room(e: Generic) -> Any:
    """The address of memory for a block of f32 and its quants."""
    return e.b.ptrtoint(cgutils.alloca_once(e.b, vector(I8, BLOCK * 5)), I64)


def widen(variant: str, isa: Isa) -> Any:
    """widen(rows, dim, target, ahead): a block of keys or values in f16 or quants, row by row, as f32 without gaps; quants stay
    rotated. `ahead`: bytes to what is read next; it is on its way to the cache meanwhile.
    """
    return _widen_quants(variant, isa) if variant in QUANTISED else widen_halves(isa, abi.ATTENTION_BLOCK)


def to_int16(variant: str, isa: Isa) -> Any:
    """to_int16(rows, dim, target, ahead): as `widen`, a block of keys or values in quants, in full blocks of dims, to `INT16`."""
    bytes_of_row, prefetch = row(variant), isa.prefetch
    read = isa.make("to_int16", void, (i64,) * 4, lambda e, *at: kv_quants.row_to_int16(e, variant, abi.ATTENTION_BLOCK, *at))

    @outline
    def to_int16(rows, dim, target, ahead):
        for key in range(abi.ATTENTION_BLOCK):
            for line in range(0, bytes_of_row(dim), LINE):
                prefetch(rows + ahead, line)
            read(rows, dim, key, target)
            rows += bytes_of_row(dim)

    return to_int16


def widen_halves(isa: Isa, n: int) -> Any:
    """`widen` of n rows in f16."""
    load_f16, store_f32, prefetch = isa("load_f16 store_f32 prefetch")
    lanes = isa.level.lanes
    read = isa.make("read", void, (i64, i64), lambda e, at, to: e.store(e.from_f16(e.load(vector(I16, lanes), at)), to))

    @outline
    def widen(rows, dim, target, ahead):
        for line in range(0, n * dim * 2, LINE):
            prefetch(rows + ahead, line)
        full = n * dim // lanes * lanes
        for j in range(0, full, lanes):
            read(rows + j * 2, target + j * 4)
        for j in range(full, n * dim):
            store_f32(target, j * 4, load_f16(rows, j * 2))

    return widen


def transpose(variant: str, isa: Isa) -> Any:
    """transpose(rows, dim, target, ahead): as `widen`, a block of keys in f16 or f32, but transposed: a row for each dim, of all
    keys.
    """
    store_f32, prefetch = isa("store_f32 prefetch")
    load, size = (isa.load_f16, 2) if variant == "f16" else (isa.load_f32, 4)
    block, lanes, eight = abi.ATTENTION_BLOCK, isa.level.tile_rows, _halves if variant == "f16" else _floats
    read = isa.make("transpose", void, (i64, i64, i64), lambda e, *at: eight(e, block * 4, *at))

    @outline
    def transpose(rows, dim, target, ahead):
        for line in range(0, block * dim * size, LINE):
            prefetch(rows + ahead, line)
        for key in range(0, block, lanes):
            here, to = rows + key * dim * size, target + key * 4
            for j in range(0, dim // 8 * 8, 8):
                read(here + j * size, dim * size, to + j * block * 4)
        for key in range(block):
            for j in range(dim // 8 * 8, dim):
                store_f32(target, (j * block + key) * 4, load(rows, (key * dim + j) * size))

    return transpose


def _floats(e: Generic, row_bytes: int, rows: Any, apart: Any, target: Any) -> None:
    """Eight values of each of some rows, those of a place side by side, `row_bytes` from one place to the next."""
    for first in range(0, 32, 16):
        here = [e.load(vector(I32, 4), e.b.add(e.at(rows, apart, row), I64(first))) for row in range(e.level.tile_rows)]
        for i, place in enumerate(e.lane_per_row(here)):
            e.store(place, target, row_bytes * (first // 4 + i))


def _halves(e: Generic, row_bytes: int, rows: Any, apart: Any, target: Any) -> None:
    """`_floats` of values in f16, which become f32."""
    b, lanes = e.b, e.level.tile_rows
    pairs = e.lane_per_row([e.load(vector(I32, 4), e.at(rows, apart, row)) for row in range(lanes)])
    for i, pair in enumerate(pairs):
        for half in range(2):
            bits = b.lshr(pair, 16) if half else pair
            e.store(e.from_f16(b.trunc(bits, vector(I16, lanes))), target, row_bytes * (2 * i + half))


def _widen_quants(variant: str, isa: Isa) -> Any:
    load_f16, load_i8, load_u8, store_f32, prefetch = isa("load_f16 load_i8 load_u8 store_f32 prefetch")
    bytes_of_row, quants, halves = row(variant), quant_bytes(variant), variant == "q4_0"
    read = isa.make("read", void, (i64, i64, i64), lambda e, *at: kv_quants.read(e, variant, *at))

    @inline
    def quant(rows, j):
        if halves:
            pair = load_u8(rows, j // BLOCK * (BLOCK // 2) + j % (BLOCK // 2))
            return (pair >> 4 if j % BLOCK >= BLOCK // 2 else pair & 15) - 8
        return load_i8(rows, j)

    @outline
    def widen(rows, dim, target, ahead):
        for _ in range(abi.ATTENTION_BLOCK):
            scale = rows + quants(dim)
            for line in range(0, bytes_of_row(dim), LINE):
                prefetch(rows + ahead, line)
            for block in range(dim // BLOCK):
                read(rows + block * (BLOCK // 2 if halves else BLOCK), scale + block * SCALE_BYTES, target + block * BLOCK * 4)
            for j in range(dim // BLOCK * BLOCK, dim):
                store_f32(target, j * 4, np.float32(quant(rows, j)) * load_f16(scale, j // BLOCK * SCALE_BYTES))
            rows += bytes_of_row(dim)
            target += dim * 4

    return widen
