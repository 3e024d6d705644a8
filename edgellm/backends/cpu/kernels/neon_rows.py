"""Few columns on AArch64, as IR: pairs of raw rows by up to four columns, so that activations are loaded once for two rows.

The sums are those of unit.py, operation by operation. Only the way of integers is another: a vector has half a block, its
products are reduced by pairwise additions, four blocks to a vector.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.kernels.unit import (
    BLOCKS,
    Shape,
    codes_offset,
    open_unit,
    raw_unit_bytes,
    started,
    sums_section,
    weighed,
)
from edgellm.backends.cpu.kernels.unpack import Unit
from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.simd.generic import V8F, V8I, V16B
from edgellm.backends.cpu.simd.neon import Neon
from edgellm.backends.cpu.traits import BLOCK, TRAITS, UNIT

Value = Any                                      # ir.Value: llvmlite has no static types
PREFETCH = 2048                                  # bytes ahead, at least, of the rows' stream


def accumulate(e: Neon, name: str, shape: Shape, weights: Value, row_bytes: Value, rows: Value, k: Value,
               columns: Sequence[Value], spaces: Sequence[Value]) -> None:
    """The eight accumulators of each of some rows by some columns, to the column's space: an f32x8 after the other."""
    b, at_once = e.b, 2 if len(columns) < 4 else 1           # the sums of four columns fill the registers with one row
    with cgutils.for_range(b, b.sdiv(b.add(rows, I64(at_once - 1)), I64(at_once))) as loop:
        first = b.mul(loop.index, I64(at_once))
        mine = [first]
        if at_once == 2:                         # past the last row that one is done again, the same
            mine.append(b.select(b.icmp_signed("<", b.add(first, I64(1)), rows), b.add(first, I64(1)), first))
        addresses = [b.add(weights, b.mul(row, row_bytes)) for row in mine]
        values = _accumulators(e, name, shape, addresses, k, columns)
        for row, of_row in zip(mine, values, strict=True):
            for value, space in zip(of_row, spaces, strict=True):
                e.store(value, b.add(space, b.mul(row, I64(32))))


def _accumulators(e: Neon, name: str, shape: Shape, rows: Sequence[Value], k: Value, columns: Sequence[Value]) -> list[list[Value]]:
    """For each row and column the eight accumulators; all streams run through."""
    b, raw_unit, whole = e.b, raw_unit_bytes(name), e.b.sdiv(k, I64(UNIT))
    units = b.sdiv(b.add(k, I64(UNIT - 1)), I64(UNIT))
    section, first_scales = b.mul(units, I64(BLOCKS * 4)), b.mul(units, I64(UNIT))
    totals = [[cgutils.alloca_once(b, V8F) for _ in columns] for _ in rows]
    for of_row in totals:
        for total in of_row:
            b.store(e.constant(V8F, 0.0), total)

    def add_unit(index: Value, last: Value | None) -> None:
        opened = [open_unit(e, name, b.add(row, b.mul(index, I64(raw_unit))), last) for row in rows]
        codes, scales = b.mul(index, I64(UNIT)), b.add(first_scales, b.mul(index, I64(BLOCKS * 4)))
        addresses = [(b.add(x, codes), b.add(x, scales)) for x in columns]
        sums = _unit_step(e, shape, opened, [[b.load(total) for total in of_row] for of_row in totals], addresses, section)
        for values, of_row in zip(sums, totals, strict=True):
            for value, total in zip(values, of_row, strict=True):
                b.store(value, total)

    with cgutils.for_range(b, whole) as loop:
        ahead = b.add(rows[0], b.mul(loop.index, I64(raw_unit * len(rows))))
        for line in range(-(-raw_unit * len(rows) // 64)):
            e.prefetch(ahead, PREFETCH + 64 * line)
        add_unit(loop.index, None)
    if TRAITS[name].block != UNIT:
        rest = b.srem(k, I64(UNIT))
        with b.if_then(b.icmp_signed(">", rest, I64(0))):
            add_unit(whole, b.sub(b.sdiv(rest, I64(BLOCK)), I64(1)))
    return [[b.load(total) for total in of_row] for of_row in totals]


def _unit_step(e: Neon, shape: Shape, units: Sequence[Unit], totals: Sequence[Sequence[Value]],
               columns: Sequence[tuple[Value, Value]], section: Value) -> list[list[Value]]:
    """Totals + the products of one unit of each row with each column: addresses of its codes and of the d of its blocks."""
    halves = shape.n_scales
    most = 128 if shape.signed else shape.most
    parts: list[list[list[list[Value]]]] = [[[[] for _ in range(halves)] for _ in columns] for _ in units]
    for j in range(BLOCKS):
        x = [[e.load(V16B, codes, codes_offset(j, h)) for h in (0, 1)] for codes, _ in columns]
        for unit, of_row in zip(units, parts, strict=True):
            w = [unit.codes(j, h) for h in (0, 1)]
            for c, dots in enumerate(of_row):
                pairs = list(zip(w, x[c], strict=True))
                for h in range(halves):
                    dots[h].append(e.dot_anyhow(pairs if halves == 1 else pairs[h : h + 1], most))

    def sums(c: int, index: int, n: int) -> Value:
        return e.load(V8I, e.b.add(columns[c][1], e.b.mul(section, I64(sums_section(index, n)))))

    offsets = [[started(e, shape.offset, sums(c, h, halves)) for h in range(halves)] if shape.offset else [] for c in range(len(columns))]
    minima = [[sums(c, h, shape.n_minima) for h in range(shape.n_minima)] for c in range(len(columns))]
    scales = [e.load(V8F, at) for _, at in columns]
    results = []
    for unit, of_row, old in zip(units, parts, totals, strict=True):
        new = []
        for c, dots in enumerate(of_row):
            whole = [e.join(e.totals(each[:4]), e.totals(each[4:])) for each in dots]
            if shape.offset:
                whole = [e.b.add(dot, offset) for dot, offset in zip(whole, offsets[c], strict=True)]
            new.append(weighed(e, old[c], whole, unit.scales, unit.minima, minima[c], scales[c]))
        results.append(new)
    return results
