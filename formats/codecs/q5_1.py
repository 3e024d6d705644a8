"""Q5_1: 32 elements d * q + m with q in 5 bits, the fifth apart (`block_q5_1` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import empty, fifth_bits, inverse, nibbles, pack_fifth_bits, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats, Ints

DTYPE = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])


def unpack(blocks: Blocks) -> Floats:
    q = nibbles(blocks["qs"]) | fifth_bits(blocks["qh"]) << np.uint8(4)
    return scale(blocks["d"]) * q.astype(np.float32) + scale(blocks["m"])


def pack(x: Floats) -> Blocks:
    low = x.min(axis=-1, keepdims=True)
    d = (x.max(axis=-1, keepdims=True) - low) / np.float32(31)
    return _blocks(x, d, low, np.trunc((x - low) * inverse(d) + np.float32(0.5)).astype(np.uint8).clip(0, 31))


def pack_weighted(x: Floats, importance: Floats, mean_square: Floats) -> Blocks:
    d, m, q = _fit.affine(x, _fit.importance_weights(x, importance, mean_square), 31, _fit.WITH_IMPORTANCE)
    return _blocks(x, d, np.float32(0) - m, q)


def _blocks(x: Floats, d: Floats, m: Floats, q: Ints) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["m"], blocks["qh"], blocks["qs"] = d[:, 0], m[:, 0], pack_fifth_bits(q), pack_nibbles(q)
    return blocks


CODEC = Codec("Q5_1", DTYPE, unpack, pack, pack_weighted)
