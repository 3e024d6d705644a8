"""Q5_0: 32 elements d * (q - 16) with q in 5 bits, the fifth apart (`block_q5_0` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import empty, fifth_bits, inverse, nibbles, pack_fifth_bits, pack_nibbles, scale, signed_extreme
from ._codec import Blocks, Codec, Floats, Ints

DTYPE = np.dtype([("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])


def unpack(blocks: Blocks) -> Floats:
    q = nibbles(blocks["qs"]) | fifth_bits(blocks["qh"]) << np.uint8(4)
    return scale(blocks["d"]) * (q.astype(np.int8) - np.int8(16)).astype(np.float32)


def pack(x: Floats) -> Blocks:
    d = signed_extreme(x) / np.float32(-16)
    return _blocks(x, d, np.trunc(x * inverse(d) + np.float32(16.5)).astype(np.uint8).clip(0, 31))


def pack_weighted(x: Floats, importance: Floats, mean_square: Floats) -> Blocks:
    d, q = _fit.symmetric(x, _fit.importance_weights(x, importance, mean_square), 16)
    return _blocks(x, d, q + 16)


def _blocks(x: Floats, d: Floats, q: Ints) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["qh"], blocks["qs"] = d[:, 0], pack_fifth_bits(q), pack_nibbles(q)
    return blocks


CODEC = Codec("Q5_0", DTYPE, unpack, pack, pack_weighted)
