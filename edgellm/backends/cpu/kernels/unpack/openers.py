"""What opens a superblock of each block type: the rows of unpack.py, unpack_grids.py and unpack_ternary.py together."""

from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu.kernels.unpack import unpack, unpack_grids, unpack_ternary
from edgellm.backends.cpu.kernels.unpack.unpack import Superblock
from edgellm.backends.cpu.simd.generic import Blocks, Generic

UNPACK: dict[str, Callable[[Generic, Blocks], Superblock]] = {**unpack.UNPACK, **unpack_grids.UNPACK, **unpack_ternary.UNPACK}
