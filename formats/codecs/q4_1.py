"""Q4_1: 32 elements d * q + m with q in 4 bits (`block_q4_1` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import empty, inverse, nibbles, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)])


def unpack(blocks: Blocks) -> Floats:
    return scale(blocks["d"]) * nibbles(blocks["qs"]).astype(np.float32) + scale(blocks["m"])


def pack(x: Floats) -> Blocks:
    low = x.min(axis=-1, keepdims=True)
    d = (x.max(axis=-1, keepdims=True) - low) / np.float32(15)
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["m"] = d[:, 0], low[:, 0]
    blocks["qs"] = pack_nibbles(np.trunc((x - low) * inverse(d) + np.float32(0.5)).astype(np.uint8).clip(0, 15))
    return blocks


def pack_weighted(x: Floats, importance: Floats, mean_square: Floats) -> Blocks:
    d, m, q = _fit.affine(x, _fit.importance_weights(x, importance, mean_square), 15, _fit.WITH_IMPORTANCE)
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["m"], blocks["qs"] = d[:, 0], np.float32(0) - m[:, 0], pack_nibbles(q)
    return blocks


CODEC = Codec("Q4_1", DTYPE, unpack, pack, pack_weighted)
