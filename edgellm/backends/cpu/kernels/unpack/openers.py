"""Opens the superblocks of every block type, by the strategy of the ISA level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgellm.backends.cpu.kernels.unpack import neon_unpack, unpack, unpack_grids, unpack_ternary
from edgellm.backends.cpu.kernels.unpack.unpack import Superblock
from edgellm.backends.cpu.simd.generic import Blocks, Generic

UNPACK: dict[str, Callable[[Generic, Blocks], Superblock]] = {**unpack.UNPACK, **unpack_grids.UNPACK, **unpack_ternary.UNPACK}
OPENERS: dict[str, dict[str, Callable[[Any, Blocks], Superblock]]] = {"common": UNPACK, "neon": UNPACK | neon_unpack.UNPACK}


def open_blocks(e: Generic, name: str, blocks: Blocks) -> Superblock:
    return OPENERS[e.level.openers][name](e, blocks)
