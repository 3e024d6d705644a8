"""F32: one IEEE single per element."""

from __future__ import annotations

import numpy as np

from ._blocks import empty
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("x", "<f4")])


def unpack(blocks: Blocks) -> Floats:
    values: Floats = blocks["x"][:, None]
    return values


def pack(x: Floats) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["x"] = x[:, 0]
    return blocks


CODEC = Codec("F32", DTYPE, unpack, pack)
