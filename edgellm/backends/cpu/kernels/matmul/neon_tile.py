"""A block of a tile of many columns on AArch64, as IR: activations stay in lanes, which the products take one by one.

The same sums as panel.py's own, operation by operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from edgellm.backends.cpu.kernels.unpack.superblock import Shape, accumulator_init, sums_section, weighed
from edgellm.backends.cpu.simd.base import F32, I32, Value, vector
from edgellm.backends.cpu.simd.generic import V16B
from edgellm.backends.cpu.simd.neon import V4I, I8mm, Neon
from edgellm.backends.cpu.traits import BLOCK, TILE_COLUMNS

X_SECTIONS = TILE_COLUMNS * BLOCK  # of a record of activations: where its d begin, then the sums
V4F = vector(F32, 4)


def tile_block(e: Neon, shape: Shape, totals: Sequence[Value], w: Value, x: Value, columns: range) -> list[Value]:
    """Totals (f32x8, a lane per row) + one block, for some columns of the tile."""
    rows, parts = e.level.tile_rows, 8 // shape.n_scales

    def tile_dots(starts: Sequence[Value], groups: range) -> list[Value]:
        if e.level.tile == "matrix":
            return _dots_by_matrix(cast(I8mm, e), starts, w, x, columns, groups)
        return _dots_by_lane(e, shape, starts, w, x, columns, groups)

    def number(kind: Any, c: int, section: int) -> Value:
        """Column c's number in a section, in all lanes: its d, or sums."""
        four = e.load(kind, x, X_SECTIONS + 4 * TILE_COLUMNS * section + c // 4 * 16)
        return e.pick(four, [c % 4] * rows)

    def numbers(index: int, kind: Any = F32) -> Value:
        return e.load(vector(kind, rows), w, rows * (BLOCK + 4 * index))

    dots = []
    for index in range(shape.n_scales):
        section = sums_section(index, shape.n_scales)
        starts = [
            accumulator_init(e, shape.offset, number(V4I, c, section)) if shape.offset else e.constant(vector(I32, rows), 0)
            for c in columns
        ]
        dots.append(tile_dots(starts, range(index * parts, (index + 1) * parts)))
    scales = [numbers(index, I32 if shape.n_factors else F32) for index in range(shape.n_scales)]
    mins = [numbers(shape.n_scales + index) for index in range(shape.n_mins)]
    factor = [numbers(shape.n_scales + shape.n_mins + index) for index in range(shape.n_factors)]
    results = []
    for i, (c, total) in enumerate(zip(columns, totals, strict=True)):
        sums = [number(V4I, c, sums_section(index, shape.n_mins)) for index in range(shape.n_mins)]
        results.append(weighed(e, total, [each[i] for each in dots], scales, mins, sums, number(V4F, c, 0), factor))
    return results


def _dots_by_lane(e: Neon, shape: Shape, starts: Sequence[Value], w: Value, x: Value, columns: range, groups: range) -> list[Value]:
    """Starts + i32x8 sums of the products of some groups of four quants, for each column."""

    def column(g: int, c: int) -> Value:
        four = e.load(V4I, x, 4 * (TILE_COLUMNS * g + c // 4 * 4))
        return e.cast(e.pick(four, [c % 4] * 4), V16B)

    most = 128 if shape.signed else shape.most
    sums = [e.split(start, 4) for start in starts]
    together = min(len(groups), e.products_at_once(most)) if e.level.dot == "i16" else 1  # products are added up in i16 first
    for first in range(0, len(groups), together):
        few = groups[first : first + together]
        quants = [[e.load(V16B, w, 4 * e.level.tile_rows * g + 16 * part) for g in few] for part in range(e.level.tile_rows // 4)]
        for i, c in enumerate(columns):
            xs = [column(g, c) for g in few]
            sums[i] = [
                e.dot_sixteens(list(zip(each, xs, strict=True)), most, total) for each, total in zip(quants, sums[i], strict=True)
            ]
        if e.level.dot == "i16":  # the next products wait too, whose quants lie at w
            *flat, w = e.done_here([*(each for of_column in sums for each in of_column), w])
            parts = e.level.tile_rows // 4
            sums = [flat[i : i + parts] for i in range(0, len(flat), parts)]
    return [e.join_all(of_column) for of_column in _in_place(e, sums)]


def _in_place(e: Neon, sums: Sequence[Sequence[Value]]) -> list[list[Value]]:
    """The same sums. All products are done before the next begin, else they spill."""
    done = iter(e.done_here([each for of_column in sums for each in of_column]))
    return [[next(done) for _ in of_column] for of_column in sums]


def _dots_by_matrix(e: I8mm, starts: Sequence[Value], w: Value, x: Value, columns: range, groups: range) -> list[Value]:
    """The same, two columns by two rows at a time; the panel has eight quants of each row together (`I8mm.panel_words`)."""
    pairs = range(0, len(columns), 2)
    row_pairs = range(e.level.tile_rows // 2)
    sums = [[e.shuffle(starts[i], starts[i + 1], [0, 8, 0, 8]) for _ in row_pairs] for i in pairs]
    for g in range(groups.start, groups.stop, 2):
        quants = [e.load(V16B, w, 4 * e.level.tile_rows * g + 16 * pair) for pair in row_pairs]
        for p, i in enumerate(pairs):
            c = columns[i]
            here, after = (e.load(V4I, x, 4 * (TILE_COLUMNS * (g + word) + c // 4 * 4)) for word in (0, 1))
            both = e.cast(e.shuffle(here, after, [c % 4, 4 + c % 4, c % 4 + 1, 5 + c % 4]), V16B)
            sums[p] = [e.products_of_pairs(total, each, both) for total, each in zip(sums[p], quants, strict=True)]
    results = []
    for each in sums:
        for column in (0, 1):
            results.append([e.shuffle(each[i], each[i + 1], [column, column + 2, column + 4, column + 6]) for i in (0, 2)])
    return [e.join_all(of_column) for of_column in _in_place(e, results)]
