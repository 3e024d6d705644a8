"""IQ4_NL: 32 elements d * VALUES[q] with q in 4 bits (`block_iq4_nl` and `kvalues_iq4nl` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import empty, inverse, nibbles, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def unpack(blocks: Blocks) -> Floats:
    return scale(blocks["d"]) * VALUES[nibbles(blocks["qs"])]


def pack(x: Floats) -> Blocks:
    return _pack(x, x * x)


def pack_weighted(x: Floats, importance: Floats, _: Floats) -> Blocks:
    mean_square = _fit.total(x * x) * np.float32(2 / 32)
    return _pack(x, _fit.importance_weights(x, importance, mean_square))


def _pack(x: Floats, weights: Floats) -> Blocks:
    d = _fit.codebook(x, weights, VALUES)
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["qs"] = d[:, 0], pack_nibbles(_fit.nearest(inverse(d) * x, VALUES))
    return blocks


CODEC = Codec("IQ4_NL", DTYPE, unpack, pack, pack_weighted)
