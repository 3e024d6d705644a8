"""Q3_K: 16 groups of 16 elements d * (sc - 32) * q with q in -4..3, its high bit apart (`block_q3_K`)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import QK_K, bits, empty, inverse, nibbles, pack_bits, pack_nibbles, scale, signed_extreme
from ._codec import Blocks, Codec, Floats, Ints

DTYPE = np.dtype([("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")])


def unpack(blocks: Blocks) -> Floats:
    packed = blocks["scales"]
    sc = nibbles(packed[:, :8], 8) | bits(packed[:, 8:], 2, 4) << np.uint8(4)
    step = scale(blocks["d"]) * (sc.astype(np.int8) - np.int8(32)).astype(np.float32)
    # A set high bit means 0..3, a clear one -4..-1.
    below = (bits(blocks["hmask"], 1) ^ np.uint8(1)) << np.uint8(2)
    q = bits(blocks["qs"], 2).astype(np.int8) - below.astype(np.int8)
    return (step[..., None] * q.reshape(-1, 16, 16).astype(np.float32)).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    step = _fit.one_by_one(x.reshape(-1, 16, 16), 4)[..., 0]
    iscale = np.float32(-32) / signed_extreme(step)
    sc = np.where(np.isfinite(iscale), np.clip(np.rint(iscale * step), -32, 31), -32)
    return _blocks(x, inverse(iscale) + np.float32(0), sc.astype(np.int32))  # no negative zero


def pack_weighted(x: Floats, importance: Floats, _: Floats) -> Blocks:
    mean_square = np.float32(2) * _fit.total(x * x) / np.float32(QK_K)
    weights = _fit.importance_weights(x, importance, mean_square).reshape(-1, 16, 16)
    step, _ = _fit.symmetric(x.reshape(-1, 16, 16), weights, 4)
    d, sc = _fit.symmetric(step[..., 0], _fit.total(weights)[..., 0], 32)
    return _blocks(x, d, sc.astype(np.int32))


def _blocks(x: Floats, d: Floats, sc: Ints) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["d"] = d[:, 0]
    step = scale(blocks["d"]) * sc.astype(np.float32)
    q = (_fit.quantise(x.reshape(-1, 16, 16), step[..., None], -4, 3) + 4).reshape(-1, QK_K)
    six_bits = sc + 32
    blocks["scales"] = np.concatenate([pack_nibbles(six_bits & 15, 8), pack_bits(six_bits >> 4, 2, 4)], axis=-1)
    blocks["qs"], blocks["hmask"] = pack_bits(q & 3, 2), pack_bits(q >> 2, 1)
    return blocks


CODEC = Codec("Q3_K", DTYPE, unpack, pack, pack_weighted)
