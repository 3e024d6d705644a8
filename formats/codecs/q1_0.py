"""Q1_0: 128 elements d or -d, a bit each (`block_q1_0` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import empty, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 16)])


def unpack(blocks: Blocks) -> Floats:
    positive = np.unpackbits(blocks["qs"], axis=-1, bitorder="little").astype(bool)
    d = scale(blocks["d"])
    return np.where(positive, d, -d)


def pack(x: Floats) -> Blocks:
    blocks = empty(x, DTYPE)
    # llama.cpp sums in f32 from the first element to the last: the order decides how f16 rounds.
    blocks["d"] = np.cumsum(np.abs(x), axis=-1, dtype=np.float32)[:, -1] / np.float32(128)
    blocks["qs"] = np.packbits(x >= 0, axis=-1, bitorder="little")
    return blocks


CODEC = Codec("Q1_0", DTYPE, unpack, pack)
