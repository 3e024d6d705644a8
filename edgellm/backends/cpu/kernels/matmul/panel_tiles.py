"""Two groups of a panel by one or two tiles of activations with the tile unit, as IR: at ISA levels with `tiles`.

The tile unit, its loads and stores, and vectors that weigh its sums hardly overlap (Emerald Rapids: a block costs their sum), so a
tile register that was loaded serves as many products as there are registers for: sums of four. Products of a few superblocks are
kept, then weighed one tile of sums after the other, in registers. Results are the same as those of `panel.multiply` at other ISA
levels, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul.panel import X_RECORD, add_to_totals, record_bytes, tile_block
from edgellm.backends.cpu.kernels.unpack.superblock import Shape
from edgellm.backends.cpu.simd.base import F32, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, TILE_COLUMNS

GROUPS, TILES = 2, 2  # together, at most
KEPT = 4  # products of each sum, in 16 KiB of the first-level cache


def multiply(
    e: Generic,
    shape: Shape,
    tiles: int,
    panel: Value,
    group_bytes: Value,
    superblocks: Value,
    x: Value,
    tile_bytes: Value,
    totals: Value,
    totals_bytes: Value,
    block: Value,
) -> None:
    """Pass `block` (0..7) of GROUPS groups, `group_bytes` apart, by `tiles` tiles, `tile_bytes` apart, as `panel.multiply`. Totals
    of a group follow those of the one before, those of a tile are `totals_bytes` after.
    """
    b, kind, columns = e.b, vector(F32, e.level.tile_rows), range(TILE_COLUMNS)
    size, n, at_once = 4 * TILE_COLUMNS * e.level.tile_rows, GROUPS * tiles, KEPT // shape.n_scales
    kept = shape.n_scales * n * size  # bytes of the products of a superblock's block
    line = ir.ArrayType(vector(I32, e.level.tile_rows), TILE_COLUMNS)
    products = b.ptrtoint(cgutils.alloca_once(b, line, KEPT * n), I64)
    sums = b.ptrtoint(cgutils.alloca_once(b, line, n), I64)
    groups, xs = [e.at(panel, group_bytes, i) for i in range(GROUPS)], [x, b.add(x, tile_bytes)][:tiles]

    def load_sums(at: Value) -> list[Value]:
        return [e.load(kind, at, 4 * e.level.tile_rows * c) for c in columns]

    def store_sums(values: Sequence[Value], at: Value) -> None:
        for c, value in zip(columns, values, strict=True):
            e.store(value, at, 4 * e.level.tile_rows * c)

    def each_sum(body: Any) -> None:
        """body(its number, its group, its tile)"""
        with e.loop(n) as loop:
            body(loop, b.udiv(loop, tiles), b.urem(loop, tiles))

    each_sum(lambda number, *_: store_sums([e.constant(kind, 0.0)] * TILE_COLUMNS, e.at(sums, number, size)))
    with cgutils.for_range_slice(b, I64(0), superblocks, I64(at_once)) as (first, _):
        left = b.sub(superblocks, first)
        here = b.select(b.icmp_signed("<", left, at_once), left, at_once)
        with e.loop(here) as loop:
            w_at, x_at = (b.mul(b.add(first, loop), each) for each in (record_bytes(e.level, shape), X_RECORD))
            out = e.at(products, loop, kept)
            _multiply_block(e, shape, [b.add(each, w_at) for each in groups], [b.add(each, x_at) for each in xs], out)

        def weigh(number: Value, group: Value, tile: Value) -> None:
            own, at = b.mul(number, shape.n_scales * size), e.at(sums, number, size)
            w0, x0 = e.at(panel, group, group_bytes), e.at(x, tile, tile_bytes)
            values = [cgutils.alloca_once(b, kind) for _ in columns]
            for place, value in zip(values, load_sums(at), strict=True):
                b.store(value, place)
            with e.loop(here) as loop:
                index, dots = b.add(first, loop), e.at(b.add(products, own), loop, kept)
                weighed = tile_block(
                    e,
                    shape,
                    [b.load(place) for place in values],
                    e.at(w0, index, record_bytes(e.level, shape)),
                    e.at(x0, index, X_RECORD),
                    columns,
                    lambda half, some: [
                        e.load(vector(I32, e.level.tile_rows), dots, half * size + 4 * e.level.tile_rows * c) for c in some
                    ],
                )
                for place, value in zip(values, weighed, strict=True):
                    b.store(value, place)
            store_sums([b.load(place) for place in values], at)

        each_sum(weigh)

    each_sum(
        lambda number, group, tile: add_to_totals(
            e, load_sums(e.at(sums, number, size)), columns, b.add(totals, e.at(b.mul(group, size), tile, totals_bytes)), block
        )
    )


def _multiply_block(e: Generic, shape: Shape, groups: Sequence[Value], xs: Sequence[Value], out: Value) -> None:
    """A block of each group by that of each tile, whose sums of the full block, or of its halves, follow each other."""
    b, depth, size = e.b, BLOCK // shape.n_scales, 4 * TILE_COLUMNS * e.level.tile_rows
    for half in range(shape.n_scales):
        outs = [
            [b.add(out, ((i * len(xs) + j) * shape.n_scales + half) * size) for j in range(len(xs))] for i in range(len(groups))
        ]
        e.tile_products(
            [b.add(each, half * depth) for each in xs],
            BLOCK,
            [b.add(each, half * depth * e.level.tile_rows) for each in groups],
            depth,
            bool(shape.offset) or shape.signed,
            outs,
        )
