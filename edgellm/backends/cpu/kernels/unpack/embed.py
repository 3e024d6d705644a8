"""Rows of an embedding table as f32, value by value as the type's codec decodes them, in the same order of operations."""

from __future__ import annotations

from typing import Any

from numba import types

from edgellm.backends.cpu.kernels.matmul.matmul_float import BYTES, CONVERT, ELEMENT
from edgellm.backends.cpu.kernels.unpack.openers import UNPACK
from edgellm.backends.cpu.ops.dense import EMBED
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Blocks, Generic
from edgellm.backends.cpu.traits import BLOCK, TRAITS

LANES = 8


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32 = isa("load_i64 load_i32")
    i64 = types.int64
    block, block_bytes = TRAITS[variant].block, TRAITS[variant].block_bytes
    decode = _floats if variant in CONVERT else _blocks
    row_of = isa.make("decode_blocks", types.void, (i64, i64, i64), lambda e, *a: decode(e, variant, *a))

    arguments = EMBED.reader(isa, "step table row_bytes n ids out out_stride")

    def embed(op, ith, nth):
        step, table, row_bytes, k, ids, out, out_stride = arguments(op)
        blocks = k // block
        first, end = blocks * ith // nth, blocks * (ith + 1) // nth
        for token in range(load_i64(step, 0)):
            row = table + load_i32(ids, token * 4) * row_bytes
            row_of(row + first * block_bytes, out + token * out_stride + first * block * 4, end - first)

    return embed


def _floats(e: Generic, name: str, source: Any, out: Any, n: Any) -> None:
    """n values."""
    b = e.b

    def convert(index: Any, lanes: int) -> None:
        values = e.load(vector(ELEMENT[name], lanes), e.at(source, index, BYTES[name]))
        e.store(CONVERT[name](e, values), e.at(out, index, 4))

    eights = b.sdiv(n, LANES)
    with e.loop(eights) as index:
        convert(b.mul(index, LANES), LANES)
    done = b.mul(eights, LANES)
    with e.loop(b.sub(n, done)) as index:
        convert(b.add(done, index), 1)


def _blocks(e: Generic, name: str, source: Any, out: Any, n: Any) -> None:
    """n blocks: scale * (quant - offset), minus the minimum where the type has one."""
    b, traits = e.b, TRAITS[name]
    with e.loop(n) as index:
        address = e.at(source, index, traits.block_bytes)
        target = e.at(out, index, traits.block * 4)
        superblock = UNPACK[name](e, Blocks(lambda j: address))  # a short block is in all places of a superblock
        scales = [b.fmul(factor, each) for factor in superblock.factor for each in superblock.scales] or superblock.scales
        for j in range(traits.block // BLOCK):
            q, place = divmod(j, e.level.together)
            for part in range(BLOCK // LANES):
                half, first = part * LANES // 16, 16 * place + part * LANES % 16
                which, lane = divmod(BLOCK * place + part * LANES, 16 * e.level.together) if traits.by_block else (half, first)
                few = e.pick(superblock.quants(q, which), range(lane, lane + LANES))
                integers = b.sub((b.sext if superblock.signed else b.zext)(few, V8I), superblock.offset)
                value = b.fmul(e.splat(e.lane(scales[half % len(scales)], j)), b.sitofp(integers, V8F))
                if superblock.mins:
                    value = b.fsub(value, e.splat(e.lane(superblock.mins[half % len(superblock.mins)], j)))
                e.store(value, target, (j * BLOCK + part * LANES) * 4)
