"""One unit of one row of block-quantised weights, as IR: opened for `dot`, multiplied, or laid out for a panel.

A row's sum is the same whichever way it is computed, bit by bit: integer dot products of each block (or half block) are exact;
accumulator j takes, unit by unit, block j's product with its scales, then its corrections for offset and minimum; the eight
accumulators are added first to last at the end. For one row they are the lanes of a vector; in a panel (panel.py) eight passes.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from edgellm.backends.cpu.kernels.unpack import UNPACK, Block, Unit
from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.simd.generic import V8F, V32B, Generic
from edgellm.backends.cpu.traits import BLOCK, TRAITS, UNIT

Value = Any                                      # ir.Value: llvmlite has no static types
VECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """What a type needs on a rung: vectors of scales and of corrections for each unit, and what its codes are like."""

    n_scales: int
    n_corrections: int
    most: int
    signed: bool


def shape_of(name: str, rung: type[Generic]) -> Shape:
    """Found by opening a unit in a function that is thrown away."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [I64]), "probe")
    e = rung(ir.IRBuilder(function.append_basic_block()))
    unit = open_unit(e, name, function.args[0])
    return Shape(len(unit.scales), len(corrections(e, unit)), unit.most, unit.signed)


def raw_unit_bytes(name: str) -> int:
    traits = TRAITS[name]
    return UNIT // traits.block * traits.block_bytes


def open_unit(e: Generic, name: str, address: Value, last: Value | None = None) -> Unit:
    """The unit at `address`, its codes in the form that `dot` likes. With `last` (i64): of a row's end, where blocks after
    block `last` do not exist; they are read as that one, and count for nothing because activations are padded with zeros.
    """
    unit = UNPACK[name](e, _blocks(e, address, TRAITS[name].block_bytes, last))
    if not (unit.signed and e.wide_codes):
        return unit
    return Unit(lambda j: e.b.xor(unit.codes(j), e.constant(V32B, -128)), unit.scales, most=255, offset=128)


def _blocks(e: Generic, address: Value, block_bytes: int, last: Value | None) -> Block:
    def block(j: int) -> Value:
        if last is None:
            return e.b.add(address, I64(j * block_bytes))
        index = e.b.select(e.b.icmp_signed("<", I64(j), last), I64(j), last)
        return e.b.add(address, e.b.mul(index, I64(block_bytes)))

    return block


def corrections(e: Generic, unit: Unit) -> list[Value]:
    """What the activations' sums are multiplied by: minima, or scale * -offset; none for signed codes."""
    if unit.offset:
        return [e.b.fmul(scale, e.constant(V8F, -float(unit.offset))) for scale in unit.scales]
    return list(unit.minima)


def sums_address(e: Generic, scales: Value, section: Value, index: int, n_corrections: int) -> Value:
    """Where the sums for a correction are: the blocks' for the only one, the first and second halves' for two."""
    return e.b.add(scales, e.b.mul(section, I64(index + n_corrections)))


def unit_step(e: Generic, unit: Unit, total: Value, codes: Value, scales: Value, section: Value) -> Value:
    """total + the products of one unit. codes, scales: addresses of the activations' codes and d of its blocks; their sums
    follow `section` bytes apart.
    """
    dots = _block_sums(e, lambda j: e.dot([(unit.codes(j), e.load(V32B, codes, BLOCK * j))], unit.signed, unit.most))
    if len(unit.scales) == 1:
        dots = [e.b.add(*dots)]
    d = e.load(V8F, scales)
    for dot, scale in zip(dots, unit.scales, strict=True):
        total = e.fma(e.b.sitofp(dot, V8F), e.b.fmul(scale, d), total)
    added = corrections(e, unit)
    for index, factor in enumerate(added):
        total = e.fma(factor, e.load(V8F, sums_address(e, scales, section, index, len(added))), total)
    return total


def _block_sums(e: Generic, dot: Callable[[int], Value]) -> list[Value]:
    """Eight i32x8 to two: lane j is the sum of the first half (then of the second half) of dot(j)."""
    def pairs(a: Value, b: Value) -> Value:
        return e.b.add(e.shuffle(a, b, [0, 8, 1, 9, 4, 12, 5, 13]), e.shuffle(a, b, [2, 10, 3, 11, 6, 14, 7, 15]))

    def fours(a: Value, b: Value) -> Value:
        return e.b.add(e.shuffle(a, b, [0, 1, 8, 9, 4, 5, 12, 13]), e.shuffle(a, b, [2, 3, 10, 11, 6, 7, 14, 15]))

    low, high = (fours(pairs(dot(i), dot(i + 1)), pairs(dot(i + 2), dot(i + 3))) for i in (0, 4))
    return [e.shuffle(low, high, [0, 1, 2, 3, 8, 9, 10, 11]), e.shuffle(low, high, [4, 5, 6, 7, 12, 13, 14, 15])]


def unpack_step(e: Generic, unit: Unit, out: Value) -> None:
    """The unit to `out`: 256 codes, then the vectors of scales, then those of corrections."""
    for j in range(8):
        e.store(unit.codes(j), out, BLOCK * j)
    for index, value in enumerate([*unit.scales, *corrections(e, unit)]):
        e.store(value, out, UNIT + VECTOR_BYTES * index)
