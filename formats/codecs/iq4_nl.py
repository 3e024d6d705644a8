"""IQ4_NL: 32 elements d * VALUES[q] with q in 4 bits (`block_iq4_nl` and `kvalues_iq4nl` in ggml-common.h)."""
from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import empty, nibbles, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def unpack(blocks: Blocks) -> Floats:
    return scale(blocks["d"]) * VALUES[nibbles(blocks["qs"])]


def pack(x: Floats) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["d"] = _fit.codebook(x, VALUES)[:, 0]
    blocks["qs"] = pack_nibbles(_fit.nearest(x, scale(blocks["d"]), VALUES))
    return blocks


CODEC = Codec("IQ4_NL", DTYPE, unpack, pack)
