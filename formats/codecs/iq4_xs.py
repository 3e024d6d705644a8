"""IQ4_XS: 8 groups of 32 elements d * (sc - 32) * VALUES[q], sc in 6 bits (`block_iq4_xs` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import QK_K, empty, inverse, nibbles, pack_nibbles, scale, signed_extreme
from ._codec import Blocks, Codec, Floats
from .iq4_nl import VALUES

DTYPE = np.dtype([("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)])
_PLACES = np.arange(0, 16, 2, dtype=np.uint16)  # two high bits per group


def steps(blocks: Blocks) -> Floats:
    """d * (sc - 32) of each group: (blocks, 8)."""
    sc = nibbles(blocks["scales_l"], 1) | (blocks["scales_h"][:, None] >> _PLACES & 3).astype(np.uint8) << np.uint8(4)
    return scale(blocks["d"]) * (sc.astype(np.int8) - np.int8(32)).astype(np.float32)


def unpack(blocks: Blocks) -> Floats:
    return (steps(blocks)[..., None] * VALUES[nibbles(blocks["qs"])].reshape(-1, 8, 32)).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    return _pack(x, x * x)


def pack_weighted(x: Floats, importance: Floats, _: Floats) -> Blocks:
    mean_square = _fit.total(x * x) * np.float32(2 / QK_K)
    return _pack(x, _fit.importance_weights(x, importance, mean_square))


def _pack(x: Floats, weights: Floats) -> Blocks:
    groups = x.reshape(-1, 8, 32)
    step = _fit.codebook(groups, weights.reshape(groups.shape), VALUES)[..., 0]
    d = -signed_extreme(step) / np.float32(32)
    sc = np.clip(np.rint(inverse(d) * step), -32, 31)
    six_bits = (sc + 32).astype(np.uint16)
    blocks = empty(x, DTYPE)
    blocks["d"] = d[:, 0]
    blocks["scales_l"] = pack_nibbles((six_bits & 15).astype(np.uint8), 1)
    blocks["scales_h"] = np.bitwise_or.reduce(six_bits >> 4 << _PLACES, axis=-1)
    blocks["qs"] = pack_nibbles(_fit.nearest(inverse(d * sc)[..., None] * groups, VALUES).reshape(-1, QK_K))
    return blocks


CODEC = Codec("IQ4_XS", DTYPE, unpack, pack, pack_weighted)
