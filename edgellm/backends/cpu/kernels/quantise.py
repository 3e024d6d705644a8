"""Rounds rows of activations to the "q8" form of traits.py, once for all products that read them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import F32, I8, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic
from edgellm.backends.cpu.traits import BLOCK, UNIT

BLOCKS_PER_UNIT = UNIT // BLOCK


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, i64 = isa.load_i64, types.int64
    write = isa.make("quantise_block", types.void, (i64, i64, i64, i64), _quantise_block)
    clear = isa.make("clear_block", types.void, (i64, i64, i64), _clear_block)

    def q8(op, ith, nth):
        step, x, x_stride, k = load_i64(op, 8), load_i64(op, 16), load_i64(op, 24), load_i64(op, 32)
        out, out_stride = load_i64(op, 40), load_i64(op, 48)
        rows, filled = load_i64(step, load_i64(op, 56) * 8), k // BLOCK
        blocks = (filled + BLOCKS_PER_UNIT - 1) // BLOCKS_PER_UNIT * BLOCKS_PER_UNIT
        items = rows * blocks
        for item in range(items * ith // nth, items * (ith + 1) // nth):
            row, block = item // blocks, item % blocks
            codes = out + row * out_stride + block * BLOCK
            scales = out + row * out_stride + blocks * BLOCK + block * 4
            if block < filled:
                write(x + row * x_stride + block * BLOCK * 4, codes, scales, blocks * 4)
            else:
                clear(codes, scales, blocks * 4)

    return {"q8": q8}[variant]


def _quantise_block(e: Generic, x: Any, codes: Any, scales: Any, section: Any) -> None:
    """32 values at x. Infinite and undefined values make the block's scale undefined, so that they show in the result."""
    b = e.b
    values = [e.load(V8F, x, 32 * i) for i in range(4)]
    sizes = [b.and_(e.cast(value, V8I), e.constant(V8I, 0x7FFFFFFF)) for value in values]

    def larger(p: Any, q: Any) -> Any:           # bits of magnitudes compare as integers do, NaN above all
        return b.select(b.icmp_signed(">", p, q), p, q)

    top = e.fold(larger(larger(sizes[0], sizes[1]), larger(sizes[2], sizes[3])), larger)
    d = b.fdiv(e.cast(top, F32), e.constant(F32, 127.0))
    inverse = b.select(b.fcmp_ordered(">", d, e.constant(F32, 0.0)), b.fdiv(e.constant(F32, 1.0), d), e.constant(F32, 0.0))
    rounded = []
    for value in values:                         # clipped, as 1 / d is infinite for the smallest d, and NaN has no integer
        scaled = e.smaller(b.fmul(value, e.splat(inverse)), e.constant(V8F, 127.0))
        rounded.append(e.nearest(e.larger(scaled, e.constant(V8F, -127.0)))[1])
    low, high = e.join(rounded[0], rounded[1]), e.join(rounded[2], rounded[3])
    e.store(b.trunc(e.join(low, high), vector(I8, 32)), codes)
    first, second = (e.fold(b.add(p, q), b.add) for p, q in ((rounded[0], rounded[1]), (rounded[2], rounded[3])))
    parts = [d, *(b.fmul(d, b.sitofp(total, F32)) for total in (b.add(first, second), first, second))]
    for part in parts:
        e.store(part, scales)
        scales = b.add(scales, section)


def _clear_block(e: Generic, codes: Any, scales: Any, section: Any) -> None:
    e.store(e.constant(vector(I8, BLOCK), 0), codes)
    for _ in range(4):
        e.store(e.constant(F32, 0.0), scales)
        scales = e.b.add(scales, section)
