"""Products of block-quantised weights with "q8" activations: out = x W' (+ bias) (+ residual), for all block types and ISA levels.

Tiles of sixteen columns take many_columns.py, the others few_columns.py; results are the same bit by bit.
"""

from __future__ import annotations

from typing import Any

from edgellm.backends.cpu.kernels.matmul.few_columns import few_columns
from edgellm.backends.cpu.kernels.matmul.many_columns import many_columns
from edgellm.backends.cpu.kernels.partition import tiles
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.traits import PANEL_ROWS

REREAD_BYTES = 1 << 18  # of an expert's rows, multiplied by full tiles, then by the other columns


def build(variant: str, isa: Isa) -> KernelFunction:
    # Not inline: LLVM would write the loop below three times, each with all of their code.
    return divided(isa, few_columns(variant, isa), many_columns(variant, isa), 1)


def divided(isa: Isa, few: Any, many: Any, together: int) -> KernelFunction:
    """A thread's rows, by columns in tiles and by the others. `together`: rows that are not divided, even without a tile."""
    load_i64, tile_rows = isa.load_i64, isa.level.tile_rows
    arguments = MATMUL.reader(isa, "step n count row_bytes full_tiles")
    tiled_rows, in_full_tiles = tiles(isa), tiles(isa, full=True)

    def matmul(op, ith, nth):
        step, n, count, row_bytes, full_tiles = arguments(op)
        columns = load_i64(step, count * 8)
        tiled = in_full_tiles(columns) if full_tiles else tiled_rows(columns)
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
