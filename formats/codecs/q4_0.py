"""Q4_0: 32 elements d * (q - 8) with q in 4 bits (`block_q4_0` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import empty, inverse, nibbles, pack_nibbles, scale, signed_extreme
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 16)])


def unpack(blocks: Blocks) -> Floats:
    return scale(blocks["d"]) * (nibbles(blocks["qs"]).astype(np.int8) - np.int8(8)).astype(np.float32)


def pack(x: Floats) -> Blocks:
    d = signed_extreme(x) / np.float32(-8)
    blocks = empty(x, DTYPE)
    blocks["d"] = d[:, 0]
    blocks["qs"] = pack_nibbles(np.trunc(x * inverse(d) + np.float32(8.5)).astype(np.uint8).clip(0, 15))
    return blocks


def pack_weighted(x: Floats, importance: Floats, mean_square: Floats) -> Blocks:
    d, q = _fit.symmetric(x, _fit.importance_weights(x, importance, mean_square), 8)
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["qs"] = d[:, 0], pack_nibbles(q + 8)
    return blocks


CODEC = Codec("Q4_0", DTYPE, unpack, pack, pack_weighted)
