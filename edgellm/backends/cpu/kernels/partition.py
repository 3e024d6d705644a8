"""Partition of rows among threads (entire rows where there are several, pieces of a single one), and the rows that form tiles."""

from __future__ import annotations

from typing import Any

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.traits import TILE_COLUMNS


@inline
def first_item(rows, pieces, ith, nth):
    """Of rows x pieces items, the first of thread `ith`; those before the first of thread `ith + 1` are its own, which
    `barriers.Partition` relies on.
    """
    if rows == 1:
        return pieces * ith // nth
    return rows * ith // nth * pieces


def tiles(isa: Isa, *, full: bool = False) -> Any:
    """Of some rows of activations, how many are in tiles, of which the last need not be full: all or none. With `full` all tiles
    are full, and the other rows come after them.
    """
    least = isa.level.tiled_from

    @inline
    def tiled(rows):
        if rows < least:
            return 0
        return rows // TILE_COLUMNS * TILE_COLUMNS if full else rows

    return tiled


def lanes(isa: Isa) -> Any:
    """True if the activation rows outside tiles are computed with a lane per block; see traits.py."""
    least = isa.level.lanes_from or 1 << 62

    @inline
    def in_lanes(rows):
        return rows >= least

    return in_lanes
