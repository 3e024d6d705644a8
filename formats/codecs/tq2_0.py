"""TQ2_0: 256 elements d * (q - 1), q in 2 bits, of which ternary weights use three (`block_tq2_0` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import bits, empty, inverse, pack_bits, round_away, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("qs", "u1", 64), ("d", "<f2")])


def unpack(blocks: Blocks) -> Floats:
    return scale(blocks["d"]) * (bits(blocks["qs"], 2).astype(np.float32) - np.float32(1))


def pack(x: Floats) -> Blocks:
    widest = np.abs(x).max(axis=-1, keepdims=True)
    blocks = empty(x, DTYPE)
    blocks["d"] = widest[:, 0]
    blocks["qs"] = pack_bits(round_away(x * inverse(widest)) + 1, 2)
    return blocks


CODEC = Codec("TQ2_0", DTYPE, unpack, pack)
