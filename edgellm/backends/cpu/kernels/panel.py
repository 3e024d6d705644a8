"""Many columns, as IR: eight weight rows unpacked and interleaved, and a tile of them by four columns.

In a panel, a unit of eight rows is: its eight blocks, each as eight vectors of four codes of every row; then the scales and the
corrections, for each of their vectors eight (one per block) with a lane per row.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.kernels.unit import (
    VECTOR_BYTES,
    Shape,
    open_unit,
    raw_unit_bytes,
    sums_address,
    unpack_step,
)
from edgellm.backends.cpu.simd.base import F32, I32, I64
from edgellm.backends.cpu.simd.generic import V8F, V8I, V32B, Generic
from edgellm.backends.cpu.traits import BLOCK, TILE_ROWS, TRAITS, UNIT

Value = Any                                      # ir.Value: llvmlite has no static types
BLOCKS = UNIT // BLOCK
GROUP_VECTOR_BYTES = TILE_ROWS * VECTOR_BYTES    # a vector of a unit for each of eight rows
LOW_PAIRS, HIGH_PAIRS = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
LOW_FOURS, HIGH_FOURS = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
LOW_HALVES, HIGH_HALVES = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]


def unit_bytes(shape: Shape) -> int:
    """Bytes of one unit of eight rows in a panel; also of the space in which the rows lie before they are interleaved."""
    return GROUP_VECTOR_BYTES * (BLOCKS + shape.n_scales + shape.n_corrections)


def unpack_group(e: Generic, name: str, shape: Shape, weights: Value, row_bytes: Value, k: Value, rows: Value,
                 out: Value) -> None:
    """Eight rows of k weights, `row_bytes` apart, to a panel at `out`; `rows` is space for one unit of them."""
    b, panel_unit = e.b, unit_bytes(shape)
    row_unit = panel_unit // TILE_ROWS

    last_block = b.sub(b.sdiv(k, I64(BLOCK)), I64(1))
    with cgutils.for_range(b, b.sdiv(b.add(k, I64(UNIT - 1)), I64(UNIT))) as units:
        source = b.add(weights, b.mul(units.index, I64(raw_unit_bytes(name))))
        last = None if TRAITS[name].block == UNIT else b.sub(last_block, b.mul(units.index, I64(BLOCKS)))
        with cgutils.for_range(b, I64(TILE_ROWS)) as loop:
            unit = open_unit(e, name, b.add(source, b.mul(loop.index, row_bytes)), last)
            unpack_step(e, unit, b.add(rows, b.mul(loop.index, I64(row_unit))))
        target = b.add(out, b.mul(units.index, I64(panel_unit)))
        with cgutils.for_range(b, I64(row_unit // VECTOR_BYTES)) as loop:
            vector_rows = b.add(rows, b.mul(loop.index, I64(VECTOR_BYTES)))
            interleave(e, vector_rows, row_unit, b.add(target, b.mul(loop.index, I64(GROUP_VECTOR_BYTES))))


def interleave(e: Generic, rows: Value, stride: int, out: Value) -> None:
    """Transpose 8 x 8 words: a vector of each of eight rows, `stride` bytes apart, to eight vectors with a lane per row."""
    v = [e.load(V8I, rows, stride * row) for row in range(TILE_ROWS)]
    ones = [e.shuffle(v[i], v[i + 1], lanes) for i in (0, 2, 4, 6) for lanes in (LOW_PAIRS, HIGH_PAIRS)]
    twos = [e.shuffle(ones[i + k], ones[i + k + 2], lanes) for i in (0, 4) for k in (0, 1) for lanes in (LOW_FOURS, HIGH_FOURS)]
    for k in range(4):
        e.store(e.shuffle(twos[k], twos[k + 4], LOW_HALVES), out, VECTOR_BYTES * k)
        e.store(e.shuffle(twos[k], twos[k + 4], HIGH_HALVES), out, VECTOR_BYTES * (k + 4))


def multiply(e: Generic, shape: Shape, panel: Value, units: Value, *columns: Value) -> list[Value]:
    """Eight rows of a panel by rows of activations at `columns`: for each an f32x8 with a lane per row."""
    b, panel_unit = e.b, unit_bytes(shape)
    section = b.mul(units, I64(BLOCKS * 4))
    first_scales = b.mul(units, I64(UNIT))
    nothing = e.constant(V8F, -0.0)              # the one value that changes nothing when it is added to
    totals = [cgutils.alloca_once_value(b, nothing) for _ in columns]
    with cgutils.for_range(b, I64(BLOCKS)) as blocks:
        sums = [cgutils.alloca_once(b, V8F) for _ in columns]
        for each in sums:
            b.store(e.constant(V8F, 0.0), each)
        with cgutils.for_range(b, units) as loop:
            at = b.add(panel, b.mul(loop.index, I64(panel_unit)))
            codes = b.add(at, b.mul(blocks.index, I64(GROUP_VECTOR_BYTES)))
            scales = b.add(at, b.mul(b.add(blocks.index, I64(BLOCKS * TILE_ROWS)), I64(VECTOR_BYTES)))
            block = b.add(b.mul(loop.index, I64(BLOCKS)), blocks.index)
            xs = [(b.add(x, b.mul(block, I64(BLOCK))), b.add(b.add(x, first_scales), b.mul(block, I64(4)))) for x in columns]
            results = _tile_block(e, shape, [b.load(each) for each in sums], codes, scales, xs, section)
            for each, value in zip(sums, results, strict=True):
                b.store(value, each)
        for total, each in zip(totals, sums, strict=True):
            b.store(b.fadd(b.load(total), b.load(each)), total)
    return [b.load(total) for total in totals]


def _tile_block(e: Generic, shape: Shape, totals: Sequence[Value], codes: Value, scales: Value,
                columns: Sequence[tuple[Value, Value]], section: Value) -> list[Value]:
    """Totals + one block. codes: its eight vectors in the panel; scales: its vector of the first scales; columns: addresses of
    the block's activation codes and of their d.
    """
    halves: list[list[Value]] = []
    for groups in (range(4), range(4, 8)):
        w = [e.load(V32B, codes, VECTOR_BYTES * g) for g in groups]
        halves.append([e.dot([(each, _four_codes(e, x, 4 * g)) for each, g in zip(w, groups, strict=True)],
                             shape.signed, shape.most) for x, _ in columns])
    dots = halves if shape.n_scales == 2 else [[e.b.add(p, q) for p, q in zip(*halves, strict=True)]]
    result = []
    for c, ((_, at), total) in enumerate(zip(columns, totals, strict=True)):
        d = e.splat(e.load(F32, at))
        for index in range(shape.n_scales):
            scale = e.load(V8F, scales, GROUP_VECTOR_BYTES * index)
            total = e.fma(e.b.sitofp(dots[index][c], V8F), e.b.fmul(scale, d), total)
        for index in range(shape.n_corrections):
            sums = e.splat(e.load(F32, sums_address(e, at, section, index, shape.n_corrections)))
            total = e.fma(e.load(V8F, scales, GROUP_VECTOR_BYTES * (shape.n_scales + index)), sums, total)
        result.append(total)
    return result


def _four_codes(e: Generic, address: Value, offset: int) -> Value:
    """Four activation codes, in every lane."""
    return e.cast(e.splat(e.load(I32, address, offset)), V32B)
