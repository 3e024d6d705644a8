"""Several groups of a panel by a tile of activations at once, as IR: a vector of activations is loaded once for all of them.

On ISA levels with `tile_groups`. Results are the same as those of `panel.multiply` for each of the groups, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul.panel import X_RECORD, X_SECTIONS, quants_at, record_bytes, sign_sums, starts_at
from edgellm.backends.cpu.kernels.unpack.superblock import Shape, accumulator_init, sums_section, weighed
from edgellm.backends.cpu.simd.base import F32, I8, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, TILE_COLUMNS

GROUP_COLUMNS = 4  # of a tile that groups are multiplied by at once


def multiply(
    e: Generic, shape: Shape, panel: Value, group_bytes: Value, superblocks: Value, x: Value, totals: Value, block: Value
) -> None:
    """`panel.multiply` of `tile_groups` groups, `group_bytes` apart; their totals follow each other."""
    b, kind, columns = e.b, vector(F32, e.level.tile_rows), GROUP_COLUMNS
    n, size, record = e.level.tile_groups * TILE_COLUMNS, 4 * e.level.tile_rows, record_bytes(e.level, shape)
    sums = b.ptrtoint(cgutils.alloca_once(b, ir.ArrayType(kind, n)), I64)

    def each(step: Callable[[Value], None]) -> None:
        with e.loop(n) as index:
            step(b.mul(index, size))

    each(lambda at: e.store(e.constant(kind, 0.0), b.add(sums, at)))
    with e.loop(superblocks) as superblock:
        w = e.at(panel, superblock, record)
        at = e.at(x, superblock, X_RECORD)
        with e.loop(TILE_COLUMNS // columns) as some:
            _block(
                e,
                shape,
                [e.at(w, group_bytes, r) for r in range(e.level.tile_groups)],
                e.at(at, some, 4 * columns),
                e.at(sums, some, size * columns),
            )
    with b.if_else(b.icmp_signed("==", block, 0)) as (first, later):
        with first:
            each(lambda at: e.store(e.load(kind, b.add(sums, at)), b.add(totals, at)))
        with later:
            each(lambda at: e.store(b.fadd(e.load(kind, b.add(totals, at)), e.load(kind, b.add(sums, at))), b.add(totals, at)))


def _block(e: Generic, shape: Shape, groups: Sequence[Value], x: Value, totals: Value) -> None:
    """Adds one block of all groups and of the first few columns at `x` to their totals."""
    rows, columns, parts = e.level.tile_rows, range(GROUP_COLUMNS), 8 // shape.n_scales
    kind, floats = vector(I8, 4 * rows), vector(F32, rows)

    def word(element: Any, c: int, section: int) -> Value:
        return e.splat(e.load(element, x, X_SECTIONS + 4 * TILE_COLUMNS * section + 4 * c), rows)

    def starts(index: int) -> list[list[Value | None]]:
        if sign_sums(e.level, shape):
            return [[starts_at(e, shape, w, index)] * len(columns) for w in groups]
        by_column = [
            accumulator_init(e, shape.offset, word(I32, c, sums_section(index, shape.n_scales))) if shape.offset else None
            for c in columns
        ]
        return [by_column] * len(groups)

    def products(index: int) -> list[list[Value]]:
        fours = range(index * parts, (index + 1) * parts)
        weights = [[lambda g=g, w=w: quants_at(e, shape, w, g) for g in fours] for w in groups]
        quants = [
            [lambda g=g, c=c: e.cast(e.splat(e.load(I32, x, 4 * (TILE_COLUMNS * g + c)), rows), kind) for g in fours]
            for c in columns
        ]
        return e.dots_of_groups(weights, quants, shape.signed, shape.most, starts(index))

    dots = [products(index) for index in range(shape.n_scales)]
    factors = [[e.load(floats, w, rows * (BLOCK + 4 * index)) for index in range(shape.n_scales + shape.n_mins)] for w in groups]
    for c in columns:
        sums, d = [word(I32, c, sums_section(index, shape.n_mins)) for index in range(shape.n_mins)], word(F32, c, 0)
        for r, each in enumerate(factors):
            at = 4 * rows * (r * TILE_COLUMNS + c)
            e.store(
                weighed(
                    e,
                    e.load(floats, totals, at),
                    [part[r][c] for part in dots],
                    each[: shape.n_scales],
                    each[shape.n_scales :],
                    sums,
                    d,
                ),
                totals,
                at,
            )
