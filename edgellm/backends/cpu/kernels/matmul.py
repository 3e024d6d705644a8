"""Products of block-quantised weights with "q8" activations: out = x W' (+ bias) (+ residual), for all block types and rungs.

Few columns read the raw rows one after the other, a sequential stream. From `PANEL_COLUMNS` on, eight rows at a time are
unpacked into the thread's scratch, and all columns pass over them in tiles of four. Results are the same bit by bit.

Measured beside other work on 2 cores of a Zen 4 (avx512vnni, rows of 2048, scripts/bench_kernels.py), 1 / 2 threads: Q4_0 20 / 28,
Q8_0 25 / 28+, Q4_K 19 / 27, Q6_K 21 / 29 GB/s where a streaming read gives 28 / 31; with 256 columns about 100 GMAC/s a thread.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels import output, panel
from edgellm.backends.cpu.kernels.unit import open_unit, raw_unit_bytes, shape_of, unit_step
from edgellm.backends.cpu.simd import F32X8, Isa
from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.backends.cpu.traits import BLOCK, PANEL_GROUPS, TILE_COLUMNS, TILE_ROWS, TRAITS, UNIT

PREFETCH = 2048                                  # bytes ahead of the row's stream
PANEL_COLUMNS = 4                                # from this many columns on, unpacking pays
i64, f32, void = types.int64, types.float32, types.void


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    shape = shape_of(variant, isa.rung)
    panel_unit = panel.unit_bytes(shape)
    load_i64 = isa.load_i64
    row_dot = isa.make("row_dot", f32, (i64, i64, i64), lambda e, *a: _row_dot(e, variant, *a))
    unpack_group = isa.make("unpack_group", void, (i64,) * 5, lambda e, *a: panel.unpack_group(e, variant, shape, *a))
    multiply = isa.make("multiply", types.UniTuple(F32X8, TILE_COLUMNS), (i64,) * (2 + TILE_COLUMNS),
                        lambda e, *a: panel.multiply(e, shape, *a))
    put, put_rows = (isa.make("put", void, (kind, i64, i64, i64), output.put) for kind in (f32, F32X8))

    def matmul(op, ith, nth):
        w, row_bytes, n, k = load_i64(op, 16), load_i64(op, 24), load_i64(op, 32), load_i64(op, 40)
        x, x_stride, columns = load_i64(op, 48), load_i64(op, 56), load_i64(load_i64(op, 8), load_i64(op, 104) * 8)
        units, scratch, scratch_bytes = (k + UNIT - 1) // UNIT, load_i64(op, 112), load_i64(op, 120)
        first, end = n * ith // nth, n * (ith + 1) // nth
        if columns >= PANEL_COLUMNS and panel_unit * (units + 1) <= scratch_bytes:
            groups = n // TILE_ROWS
            first, end = groups * ith // nth, groups * (ith + 1) // nth
            rows = scratch + ith * scratch_bytes
            at_once = min(PANEL_GROUPS, (scratch_bytes // panel_unit - 1) // units)
            for group in range(first, end, at_once):
                here = min(at_once, end - group)
                for i in range(here):
                    unpack_group(w + (group + i) * TILE_ROWS * row_bytes, row_bytes, k, rows, rows + panel_unit * (1 + i * units))
                for c0 in range(0, columns, TILE_COLUMNS):           # past the last column that one is done again, the same
                    c1, c2, c3 = min(c0 + 1, columns - 1), min(c0 + 2, columns - 1), min(c0 + 3, columns - 1)
                    x0, x1, x2, x3 = x + c0 * x_stride, x + c1 * x_stride, x + c2 * x_stride, x + c3 * x_stride
                    for i in range(here):
                        y0, y1, y2, y3 = multiply(rows + panel_unit * (1 + i * units), units, x0, x1, x2, x3)
                        row = (group + i) * TILE_ROWS
                        put_rows(y0, op, row, c0)
                        put_rows(y1, op, row, c1)
                        put_rows(y2, op, row, c2)
                        put_rows(y3, op, row, c3)
            first, end = groups * TILE_ROWS if ith == nth - 1 else n, n
        for row in range(first, end):
            for c in range(columns):
                put(row_dot(w + row * row_bytes, x + c * x_stride, k), op, row, c)

    return matmul


def _row_dot(e: Generic, name: str, weights: Any, x: Any, k: Any) -> Any:
    """One row by one column; both streams run through, the row's lines are asked for ahead."""
    b, raw_unit, whole = e.b, raw_unit_bytes(name), e.b.sdiv(k, I64(UNIT))
    units = b.sdiv(b.add(k, I64(UNIT - 1)), I64(UNIT))
    section, first_scales = b.mul(units, I64(UNIT // BLOCK * 4)), b.add(x, b.mul(units, I64(UNIT)))
    total = cgutils.alloca_once_value(b, e.constant(V8F, 0.0))

    def add_unit(index: Any, last: Any) -> None:
        unit = open_unit(e, name, b.add(weights, b.mul(index, I64(raw_unit))), last)
        codes, scales = b.add(x, b.mul(index, I64(UNIT))), b.add(first_scales, b.mul(index, I64(UNIT // BLOCK * 4)))
        b.store(unit_step(e, unit, b.load(total), codes, scales, section), total)

    with cgutils.for_range(b, whole) as loop:
        for line in range(-(-raw_unit // 64)):
            e.prefetch(b.add(weights, b.mul(loop.index, I64(raw_unit))), PREFETCH + 64 * line)
        add_unit(loop.index, None)
    if TRAITS[name].block != UNIT:
        rest = b.srem(k, I64(UNIT))
        with b.if_then(b.icmp_signed(">", rest, I64(0))):
            add_unit(whole, b.sub(b.sdiv(rest, I64(BLOCK)), I64(1)))
    return e.in_order(b.load(total))

