"""Rows of an embedding table whose rows lie interleaved in memory (formats/interleave.py): `embed`, value by value."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.unpack.panel_rows import open_rows
from edgellm.backends.cpu.kernels.unpack.row_words import InterleavedRows, There, each_superblock
from edgellm.backends.cpu.kernels.unpack.superblock import Shape, raw_superblock_bytes, shape_of
from edgellm.backends.cpu.ops.dense import EMBED
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, I8, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, SUPERBLOCK


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32 = isa("load_i64 load_i32")
    i64 = types.int64
    shape, group = shape_of(variant, isa.instructions), isa.level.tile_rows
    superblock_bytes = raw_superblock_bytes(variant) * group
    row_of = isa.make("decode_row", types.void, (i64,) * 4, lambda e, *a: _row(e, variant, shape, *a))

    arguments = EMBED.reader(isa, "step table row_bytes n ids out out_stride")

    def embed(op, ith, nth):
        step, table, row_bytes, k, ids, out, out_stride = arguments(op)
        superblocks = (k + SUPERBLOCK - 1) // SUPERBLOCK
        first, end = superblocks * ith // nth, superblocks * (ith + 1) // nth
        for token in range(load_i64(step, 0)):
            row = load_i32(ids, token * 4)
            rows = table + row // group * group * row_bytes + first * superblock_bytes
            row_of(
                rows, min(end * SUPERBLOCK, k) - first * SUPERBLOCK, row % group, out + token * out_stride + first * SUPERBLOCK * 4
            )

    return embed


class _Row:
    """Stores the values of one of the rows of a superblock: see panel_rows.Target."""

    def __init__(self, e: Generic, shape: Shape, row: Value, out: Value) -> None:
        self._e, self._shape, self._out = e, shape, out
        kind = vector(I32, e.level.tile_rows)
        self._space = e.b.ptrtoint(cgutils.alloca_once(e.b, ir.ArrayType(kind, BLOCK // 4)), I64)
        self._at = e.at(self._space, row, 4)
        self._lane = e.b.trunc(row, I32)
        self._numbers: dict[tuple[int, int], Value] = {}
        self._places: dict[int, int] = {}
        self._quants: dict[tuple[int, int], Value] = {}

    def quants(self, block: int, g: int, value: Value, place: int = 0) -> None:
        self._places[block], self._quants[block, g] = place, self._e.cast(value, vector(I32, self._e.level.tile_rows))

    def number(self, block: int, index: int, value: Value) -> None:
        number = self._e.b.extract_element(value, self._lane)
        self._numbers[block, index] = number if number.type == F32 else self._e.b.sitofp(number, F32)

    def done(self, block: int) -> None:
        """scale * (quant - offset), minus the minimum where the type has one."""
        e, b, n, offset = self._e, self._e.b, self._shape.n_scales, self._shape.offset << self._places[block]
        scales = [self._numbers[block, half] for half in range(n)]
        if self._shape.n_factors:
            scales = [b.fmul(self._numbers[block, n + self._shape.n_mins], each) for each in scales]
        for g in range(BLOCK // 4):
            e.store(self._quants[block, g], self._space, 4 * e.level.tile_rows * g)
        for g in range(BLOCK // 4):
            quants = e.load(vector(I8, 4), self._at, 4 * e.level.tile_rows * g)
            integers = b.sub(b.zext(quants, vector(I32, 4)), offset)
            value = b.fmul(e.splat(scales[g * n // 8], 4), b.sitofp(integers, vector(F32, 4)))
            if self._shape.n_mins:
                minimum = self._numbers[block, n + g * self._shape.n_mins // 8]
                if self._shape.n_mins == 2:  # see `mins_of`
                    minimum = b.fmul(minimum, float(e.level.tile_offset or 1))
                value = b.fsub(value, e.splat(minimum, 4))
            e.store(value, self._out, 4 * (BLOCK * block + 4 * g))


def _row(e: Generic, name: str, shape: Shape, rows: Value, k: Value, row: Value, out: Value) -> None:
    """k values of a row of a group."""

    def use(index: Value, words: InterleavedRows, there: There, blocks: Value | None) -> None:
        to = e.at(out, index, SUPERBLOCK * 4)
        open_rows(e, name, words, _Row(e, shape, row, to), there)

    each_superblock(e, name, rows, k, use)
