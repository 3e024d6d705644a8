"""Many columns: tiles of sixteen pass over a panel of rows that are unpacked into the thread's scratch."""

from __future__ import annotations

from typing import Any

from numba import types

from edgellm.backends.cpu.kernels.inline import inline, outline
from edgellm.backends.cpu.kernels.matmul import output, panel, panel_groups, panel_tiles
from edgellm.backends.cpu.kernels.prefetch import LINE
from edgellm.backends.cpu.kernels.unpack.superblock import BLOCKS, Shape, folded, raw_superblock_bytes, shape_of
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.traits import BLOCK, PANEL_GROUPS, PANEL_ROWS, SUPERBLOCK, TILE_COLUMNS, TOTALS_OF_TILES

FEW_OF_TILE = 12  # of the last tile: so many columns go by fours, more as a full tile
i64, f32, void = types.int64, types.float32, types.void


def many_columns(variant: str, isa: Isa, *, interleaved: bool = False) -> Any:
    """Groups of rows from `first` to `end`, with more up to `until` after them, by full tiles of columns."""
    load_f32, level, opened = isa.load_f32, isa.level, shape_of(variant, isa.instructions)
    shape = folded(opened, level)
    arguments = MATMUL.reader(isa, "weights row_bytes n k x x_stride scratch")
    tile_rows, panel_bytes, small_until = level.tile_rows, level.panel_bytes, level.small_panel_columns
    record, row_superblock = panel.record_bytes(level, shape), panel.row_superblock_bytes(shape)
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
    side_by_side, together = level.tile_groups, panel_tiles.TILES if level.tile == "unit" else 1
    assert side_by_side <= PANEL_GROUPS
    by_panel = (_panel_by_tile_unit if level.tile == "unit" else _panel_by_tile)(isa, shape, ahead_bytes)
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
