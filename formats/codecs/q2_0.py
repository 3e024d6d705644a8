"""Q2_0: 64 elements d * (q - 1), q in 2 bits, neighbours in a byte (`block_q2_0` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import bits, empty, inverse, pack_bits, round_away, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 16)])


def unpack(blocks: Blocks) -> Floats:
    return (bits(blocks["qs"], 2, 1).astype(np.float32) - np.float32(1)) * scale(blocks["d"])


def pack(x: Floats) -> Blocks:
    widest = np.abs(x).max(axis=-1, keepdims=True)
    blocks = empty(x, DTYPE)
    blocks["d"] = widest[:, 0]
    blocks["qs"] = pack_bits(np.clip(round_away(x * inverse(widest)) + 1, 0, 3), 2, 1)
    return blocks


CODEC = Codec("Q2_0", DTYPE, unpack, pack)
