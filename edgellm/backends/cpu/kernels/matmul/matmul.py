"""Products of block-quantised weights with "q8" activations: out = x W' (+ bias) (+ residual), for all block types and ISA levels.

Few columns read the raw rows one after the other, a sequential stream, up to four columns at a time, or up to sixteen in the way
of block_lanes.py. Tiles of sixteen columns pass over a panel of rows that are unpacked into the thread's scratch. Results are the
same bit by bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.inline import inline, outline
from edgellm.backends.cpu.kernels.matmul import block_lanes, neon_rows, output, panel, panel_groups, panel_tiles
from edgellm.backends.cpu.kernels.matmul.row import row_totals
from edgellm.backends.cpu.kernels.partition import lanes, tiles
from edgellm.backends.cpu.kernels.prefetch import LINE
from edgellm.backends.cpu.kernels.unpack.superblock import Shape, folded, raw_superblock_bytes, shape_of
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.simd import F32X8, Isa
from edgellm.backends.cpu.simd.base import F32, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.backends.cpu.simd.neon import Neon
from edgellm.backends.cpu.traits import BLOCK, PANEL_GROUPS, PANEL_ROWS, SUPERBLOCK, TILE_COLUMNS, TOTALS_OF_TILES

BLOCKS = SUPERBLOCK // BLOCK
FEW_OF_TILE = 12  # of the last tile: so many columns go by fours, more as a whole tile
REREAD_BYTES = 1 << 18  # of an expert's rows, multiplied by whole tiles, then by the other columns
LANE_COLUMNS, TOTALS_BYTES = block_lanes.COLUMNS, block_lanes.TOTALS_BYTES
i64, f32, void = types.int64, types.float32, types.void


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    # Not inline: LLVM would write the loop below three times, each with all of their code.
    few = (_lanes_or_pairs if isa.level.lanes_from else _few_columns)(variant, isa)
    return divided(isa, few, many_columns(variant, isa), 1)


def divided(isa: Isa, few: Any, many: Any, together: int) -> Callable[[int, int, int], None]:
    """A thread's rows, by columns in tiles and by the others. `together`: rows that are not divided, even without a tile."""
    load_i64, tile_rows = isa.load_i64, isa.level.tile_rows
    arguments = MATMUL.reader(isa, "step n count row_bytes whole_tiles")
    tiled_rows, in_whole_tiles = tiles(isa), tiles(isa, whole=True)

    def matmul(op, ith, nth):
        step, n, count, row_bytes, whole_tiles = arguments(op)
        columns = load_i64(step, count * 8)
        tiled = in_whole_tiles(columns) if whole_tiles else tiled_rows(columns)
        unit, units = together, n // together  # threads divide rows, or groups of them
        if tiled > 0:
            unit, units = tile_rows, (n + tile_rows - 1) // tile_rows
        first, end = units * ith // nth, units * (ith + 1) // nth
        at_once = max(1, end - first)
        if 0 < tiled < columns:  # the other columns read the same rows while the second-level cache has them
            at_once = max(1, REREAD_BYTES // (PANEL_ROWS * row_bytes)) * (PANEL_ROWS // tile_rows)
        for group in range(first, end, at_once):
            last = min(group + at_once, end)
            if tiled > 0:
                many(op, group, last, units, tiled)
            if tiled < columns:
                few(op, group * unit, min(last * unit, n), tiled, columns)

    return matmul


def _few_columns(variant: str, isa: Isa) -> Any:
    """Some rows of weights by columns that lie in rows, eight rows at a time."""
    store, arguments, dots = _store(isa), MATMUL.reader(isa, "weights row_bytes k x x_stride"), _dots(variant, isa)
    one, two, four = dots(1), dots(2), dots(4)

    def few(op, first, end, from_column, columns):
        w, row_bytes, k, x, x_stride = arguments(op)
        for row in range(first, end, 8):
            weights, rows, c = w + row * row_bytes, min(8, end - row), from_column
            while columns - c > 2:  # past the last column that one is done again, the same
                d = min(c + 3, columns - 1)
                x0 = x + c * x_stride
                a0, a1, a2, a3 = four(weights, row_bytes, rows, k, x0, x0 + x_stride, x0 + 2 * x_stride, x + d * x_stride)
                store(op, row, rows, c, a0)
                store(op, row, rows, c + 1, a1)
                store(op, row, rows, c + 2, a2)
                if d > c + 2:  # what is stored may take the place of the gate that it was multiplied by
                    store(op, row, rows, d, a3)
                c = d + 1
            if columns - c == 2:
                b0, b1 = two(weights, row_bytes, rows, k, x + c * x_stride, x + (c + 1) * x_stride)
                store(op, row, rows, c, b0)
                store(op, row, rows, c + 1, b1)
            elif columns - c == 1:
                store(op, row, rows, c, one(weights, row_bytes, rows, k, x + c * x_stride)[0])

    return outline(few)


def _lanes_or_pairs(variant: str, isa: Isa) -> Any:
    """The same, three columns and more with a lane per block."""
    store, arguments, dots = _store(isa), MATMUL.reader(isa, "weights row_bytes k x x_stride"), _dots(variant, isa)
    one, two, by_lanes, in_lanes = dots(1), dots(2), _block_lanes(variant, isa), lanes(isa)

    def few(op, first, end, from_column, columns):
        if in_lanes(columns):
            by_lanes(op, first, end, from_column, columns)
            return
        w, row_bytes, k, x, x_stride = arguments(op)
        for row in range(first, end, 8):
            weights, rows, c = w + row * row_bytes, min(8, end - row), from_column
            if columns - c == 2:
                b0, b1 = two(weights, row_bytes, rows, k, x + c * x_stride, x + (c + 1) * x_stride)
                store(op, row, rows, c, b0)
                store(op, row, rows, c + 1, b1)
            elif columns - c == 1:
                store(op, row, rows, c, one(weights, row_bytes, rows, k, x + c * x_stride)[0])

    return outline(few)


def _dots(variant: str, isa: Isa) -> Callable[[int], Any]:
    """Functions that multiply eight rows of weights by so many columns."""
    shape = shape_of(variant, isa.level)

    def dots(n: int) -> Any:
        return isa.make(
            f"rows_by_{n}",
            types.UniTuple(F32X8, n),
            (i64,) * (4 + n),
            lambda e, w, row_bytes, rows, k, *xs: _rows_dots(e, variant, shape, w, row_bytes, rows, k, xs),
        )

    return dots


def _store(isa: Isa) -> Any:
    """Stores a column's sums of eight rows or fewer."""
    lane = isa.lane_f32x8
    put, put_rows = (isa.make("put", void, (kind, i64, i64, i64), output.put) for kind in (f32, F32X8))

    @inline
    def store(op, row, rows, c, value):
        if rows == 8:
            put_rows(value, op, row, c)
        else:
            for i in range(rows):
                put(lane(value, i), op, row + i, c)

    return store


def _block_lanes(variant: str, isa: Isa) -> Any:
    """Some rows of weights by columns that lie in rows with a lane per block, eight rows by sixteen columns at a time."""
    shape, store = shape_of(variant, isa.level), _store(isa)
    arguments = MATMUL.reader(isa, "weights row_bytes k x x_stride scratch")
    accumulate = isa.make("accumulate", void, (i64,) * 8, lambda e, *a: block_lanes.accumulate(e, variant, shape, *a))
    summed = isa.make("summed", F32X8, (i64,), lambda e, totals: block_lanes.summed(e, totals, _transposed))

    @inline
    def by_lanes(op, first, end, from_column, columns):
        w, row_bytes, k, x, x_stride, totals = arguments(op)
        for row in range(first, end, 8):
            rows = min(8, end - row)
            for c in range(from_column, columns, LANE_COLUMNS):
                n = min(LANE_COLUMNS, columns - c)
                accumulate(w + row * row_bytes, row_bytes, rows, k, x + c * x_stride, x_stride, n, totals)
                for i in range(n):
                    store(op, row, rows, c + i, summed(totals + i * TOTALS_BYTES))

    return by_lanes


def many_columns(variant: str, isa: Isa, *, interleaved: bool = False) -> Any:
    """Groups of rows from `first` to `end`, with more up to `until` after them, by whole tiles of columns."""
    load_f32, isa_level, opened = isa.load_f32, isa.level, shape_of(variant, isa.level)
    shape = folded(opened, isa_level)
    arguments = MATMUL.reader(isa, "weights row_bytes n k x x_stride scratch")
    tile_rows, panel_bytes, small_until = isa_level.tile_rows, isa_level.panel_bytes, isa_level.small_panel_columns
    record, row_superblock = panel.record_bytes(isa_level, shape), panel.row_superblock_bytes(shape)
    unpack_group = isa.make(
        "unpack_group",
        void,
        (i64,) * 7,
        lambda e, *a: (
            panel.unpack_interleaved(e, variant, opened, a[0], a[3], *a[5:])
            if interleaved
            else panel.unpack_group(e, variant, opened, *a)
        ),
    )
    ahead_bytes = tile_rows * raw_superblock_bytes(variant) // BLOCKS if small_until else 0
    side_by_side, together = isa_level.tile_groups, panel_tiles.TILES if isa_level.tiles else 1
    assert side_by_side <= PANEL_GROUPS
    by_panel = (_panel_by_tile_unit if isa_level.tiles else _panel_by_tile)(isa, shape, ahead_bytes)
    put, put_rows, put_tile, fetch_tile = (
        isa.make(name, void, kinds, body)
        for name, kinds, body in (
            ("put", (f32, i64, i64, i64), output.put),
            ("put_rows", (i64,) * 4, output.put_rows),
            ("put_tile", (i64,) * 4, output.put_tile),
            ("fetch_tile", (i64,) * 4, output.fetch_tile),
        )
    )
    fetch = isa.make("fetch", void, (i64,), lambda e, at: e.prefetch(at, to_first=False))
    begin_tiles = isa.make("begin_tiles", void, (), lambda e: e.begin_tiles(BLOCK // shape.n_scales))
    end_tiles = isa.make("end_tiles", void, (), lambda e: e.end_tiles())

    @outline
    def many(op, first, end, until, columns):
        w, row_bytes, n, k, x, x_stride, totals = arguments(op)
        superblocks, blocks = (k + SUPERBLOCK - 1) // SUPERBLOCK, (k + BLOCK - 1) // BLOCK
        pass_bytes, x_pass_bytes = superblocks * record, superblocks * panel.X_RECORD
        at_once = 1  # a large panel goes through the second-level cache: too slow for a few tiles
        if columns > small_until:
            at_once = max(1, min(PANEL_ROWS // tile_rows, panel_bytes // (pass_bytes * BLOCKS)) // side_by_side * side_by_side)
        at_once = max(at_once, side_by_side)
        panel_pass_bytes = pass_bytes * at_once
        rows = totals + TOTALS_OF_TILES
        groups = rows + tile_rows * row_superblock
        begin_tiles()
        for group in range(first, end, at_once):
            here = min(at_once, end - group)
            for i in range(here):
                row = (group + i) * tile_rows
                unpack_group(
                    w + row * row_bytes, row_bytes, min(n - row, tile_rows), k, rows, groups + i * pass_bytes, panel_pass_bytes
                )
            done, last_row = group + here, min((group + here + at_once) * tile_rows, until * tile_rows, n)
            ahead, lines = w + done * tile_rows * row_bytes, max(0, last_row - done * tile_rows) * row_bytes // LINE
            if columns <= small_until:  # `by_panel` does it
                lines = 0
            step = TILE_COLUMNS * together
            passes = (columns + step - 1) // step * BLOCKS
            near = ahead
            for c in range(0, columns, step):
                some = min(step, columns - c)
                for block in range(BLOCKS):
                    turn = c // step * BLOCKS + block  # meanwhile the rows of the next panel come to the cache
                    for line in range(lines * turn // passes, lines * (turn + 1) // passes):
                        fetch(ahead + line * LINE)
                    for i in range(here):  # and the places of the results
                        fetch_tile(op, (group + i) * tile_rows, c + block * some // BLOCKS, c + (block + 1) * some // BLOCKS)
                    at, x_at = groups + block * panel_pass_bytes, x + c * x_stride + block * x_pass_bytes
                    n_superblocks = (blocks - block + BLOCKS - 1) // BLOCKS  # those that have such a block: there may be none
                    if c > 0 or columns > small_until:
                        near = 0
                    by_panel(at, pass_bytes, here, n_superblocks, x_at, TILE_COLUMNS * x_stride, some, totals, block, near)
                    near += n_superblocks * ahead_bytes
                for first_column in range(0, some, TILE_COLUMNS):  # of tiles whose rows lie side by side
                    for i in range(here):
                        row, at = (group + i) * tile_rows, totals + (first_column * PANEL_ROWS + i * tile_rows * TILE_COLUMNS) * 4
                        if row + tile_rows <= n and first_column + TILE_COLUMNS <= some:
                            put_tile(at, op, row, c + first_column)
                            continue
                        for column in range(first_column, min(first_column + TILE_COLUMNS, some)):
                            if row + tile_rows <= n:
                                put_rows(at, op, row, c + column)
                            else:
                                for r in range(n - row):
                                    put(load_f32(at, r * 4), op, row + r, c + column)
                            at += tile_rows * 4
        end_tiles()

    return many


def _panel_by_tile(isa: Isa, shape: Shape, ahead_bytes: int) -> Any:
    """A pass of the groups of a panel by one tile of activations, or the first columns of it; see `many_columns`."""
    side_by_side, totals_bytes = isa.level.tile_groups, isa.level.tile_rows * TILE_COLUMNS * 4
    multiply = isa.make("multiply", void, (i64,) * 6, lambda e, *a: panel.multiply(e, shape, ahead_bytes, *a))
    multiply_few = isa.make("multiply_few", void, (i64,) * 6, lambda e, *a: panel.multiply_few(e, shape, *a))
    multiply_several = (
        isa.make("multiply_several", void, (i64,) * 6, lambda e, *a: panel_groups.multiply(e, shape, *a))
        if side_by_side > 1
        else None
    )

    @outline
    def by_few(panel_at, pass_bytes, groups, superblocks, x, columns, totals, block):
        for i in range(groups):
            multiply_few(panel_at + i * pass_bytes, superblocks, x, totals + i * totals_bytes, block, columns)

    @inline
    def by_panel(panel_at, pass_bytes, groups, superblocks, x, tile_bytes, columns, totals, block, near):
        if columns <= FEW_OF_TILE:
            by_few(panel_at, pass_bytes, groups, superblocks, x, columns, totals, block)
            return
        alone = 0
        if side_by_side > 1:
            alone = groups // side_by_side * side_by_side
            for i in range(0, alone, side_by_side):
                multiply_several(panel_at + i * pass_bytes, pass_bytes, superblocks, x, totals + i * totals_bytes, block)
        for i in range(alone, groups):
            multiply(panel_at + i * pass_bytes, superblocks, x, totals + i * totals_bytes, block, near)

    return by_panel


def _panel_by_tile_unit(isa: Isa, shape: Shape, ahead_bytes: int) -> Any:
    """The same by one tile or two."""
    assert not ahead_bytes and isa.level.tile_groups == panel_tiles.GROUPS
    totals_bytes = isa.level.tile_rows * TILE_COLUMNS * 4
    one, two = (
        isa.make(f"by_{n}_tiles", void, (i64,) * 8, lambda e, *a, n=n: panel_tiles.multiply(e, shape, n, *a))
        for n in range(1, panel_tiles.TILES + 1)
    )

    @inline
    def by_panel(panel_at, pass_bytes, groups, superblocks, x, tile_bytes, columns, totals, block, near):
        for i in range(0, groups, 2):
            at, apart = panel_at + i * pass_bytes, pass_bytes if i + 1 < groups else 0  # the last one alone: twice
            if columns > TILE_COLUMNS:
                two(at, apart, superblocks, x, tile_bytes, totals + i * totals_bytes, PANEL_ROWS * TILE_COLUMNS * 4, block)
            else:
                one(at, apart, superblocks, x, tile_bytes, totals + i * totals_bytes, PANEL_ROWS * TILE_COLUMNS * 4, block)

    return by_panel


def _rows_dots(e: Generic, name: str, shape: Shape, weights: Any, row_bytes: Any, rows: Any, k: Any, columns: Any) -> list[Any]:
    """Up to eight rows by some columns: for each an f32x8 with a lane per row. Accumulators are added in order at the end."""
    b = e.b
    spaces = [cgutils.alloca_once(b, vector(F32, 64)) for _ in columns]
    if isinstance(e, Neon):
        neon_rows.accumulate(e, name, shape, weights, row_bytes, rows, k, columns, [b.ptrtoint(space, I64) for space in spaces])
    else:
        with cgutils.for_range(b, rows) as loop:
            values = row_totals(e, name, shape, b.add(weights, b.mul(loop.index, row_bytes)), k, columns)
            for value, space in zip(values, spaces, strict=True):
                e.store(value, b.add(b.ptrtoint(space, I64), b.mul(loop.index, I64(32))))
    results = []
    for space in spaces:
        lanes = _transposed(e, [e.load(V8F, b.ptrtoint(space, I64), 32 * row) for row in range(8)])
        results.append(functools.reduce(b.fadd, lanes))
    return results


def _transposed(e: Generic, rows: list[Any]) -> list[Any]:
    """8 x 8 lanes."""
    for distance, low in ((1, [0, 8, 2, 10, 4, 12, 6, 14]), (2, [0, 1, 8, 9, 4, 5, 12, 13]), (4, [0, 1, 2, 3, 8, 9, 10, 11])):
        high = [lane + distance for lane in low]
        mixed = list(rows)
        for i in range(8):
            if not i & distance:
                mixed[i], mixed[i + distance] = (e.shuffle(rows[i], rows[i + distance], lanes) for lanes in (low, high))
        rows = mixed
    return rows
