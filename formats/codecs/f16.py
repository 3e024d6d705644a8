"""F16: one IEEE half per element."""

from __future__ import annotations

import numpy as np

from ._blocks import empty, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("x", "<f2")])


def unpack(blocks: Blocks) -> Floats:
    return scale(blocks["x"])


def pack(x: Floats) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["x"] = x[:, 0].astype(np.float16)
    return blocks


CODEC = Codec("F16", DTYPE, unpack, pack)
