"""Rows of an embedding table whose rows lie interleaved in memory (formats/interleave.py): `embed`, value by value."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.embed import decode_blocks
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import TRAITS
from edgellm.backends.cpu.words import EMBED
from edgellm.formats.interleave import places


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_i32, i64 = isa.load_i64, isa.load_i32, types.int64
    block, group, group_bytes = TRAITS[variant].block, isa.level.tile_rows, isa.level.tile_rows * TRAITS[variant].block_bytes
    blocks_of = isa.make("decode_blocks", types.void, (i64,) * 4, lambda e, *a: _blocks(e, variant, *a))

    arguments = EMBED.reader(isa, "step table row_bytes n ids out out_stride")

    def embed(op, ith, nth):
        step, table, row_bytes, k, ids, out, out_stride = arguments(op)
        blocks = k // block
        first, end = blocks * ith // nth, blocks * (ith + 1) // nth
        for token in range(load_i64(step, 0)):
            row = load_i32(ids, token * 4)
            rows = table + row // group * group * row_bytes
            blocks_of(rows + first * group_bytes, row % group, out + token * out_stride + first * block * 4, end - first)

    return embed


def _blocks(e: Generic, name: str, source: Any, row: Any, out: Any, n: Any) -> None:
    """n blocks of a row of a group, each put together in memory first."""
    b, group_bytes = e.b, I64(e.tile_rows * TRAITS[name].block_bytes)
    space = b.ptrtoint(cgutils.alloca_once(b, ir.ArrayType(I64, -(-TRAITS[name].block_bytes // 8))), I64)

    def block_at(index: Any) -> Any:
        block = b.add(source, b.mul(index, group_bytes))
        for offset, (size, place) in places(name).items():
            unit = e.load(ir.IntType(8 * size), b.add(block, b.mul(row, I64(size))), place * e.tile_rows)
            e.store(unit, space, offset)
        return space

    decode_blocks(e, name, block_at, out, n)
