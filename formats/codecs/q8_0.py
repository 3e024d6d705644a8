"""Q8_0: 32 elements d * q with q a signed byte (`block_q8_0` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import empty, inverse, round_away, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("qs", "i1", 32)])


def unpack(blocks: Blocks) -> Floats:
    return blocks["qs"].astype(np.float32) * scale(blocks["d"])


def pack(x: Floats) -> Blocks:
    d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["qs"] = d[:, 0], round_away(x * inverse(d))
    return blocks


CODEC = Codec("Q8_0", DTYPE, unpack, pack)
