"""Q6_K: 16 groups of 16 elements d * sc * (q - 32) with q in 6 bits, sc a signed byte (`block_q6_K`)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import QK_K, bits, empty, nibbles, pack_bits, pack_nibbles, scale, signed_extreme
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")])


def unpack(blocks: Blocks) -> Floats:
    step = scale(blocks["d"]) * blocks["scales"].astype(np.float32)
    q = (nibbles(blocks["ql"], 64) | bits(blocks["qh"], 2) << np.uint8(4)).astype(np.int8) - np.int8(32)
    return (step[..., None] * q.reshape(-1, 16, 16).astype(np.float32)).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    return _pack(x, x * x)


def pack_weighted(x: Floats, importance: Floats, _: Floats) -> Blocks:
    return _pack(x, importance)


def _pack(x: Floats, weights: Floats) -> Blocks:
    groups = x.reshape(-1, 16, 16)
    step = _fit.symmetric(groups, weights.reshape(groups.shape), 32)[0][..., 0]
    widest = signed_extreme(step)
    iscale = np.float32(-128) / widest
    zeros = np.abs(widest) < _fit.TINY
    sc = np.where(zeros, 0, np.minimum(np.rint(iscale * step), 127)).astype(np.int32)
    blocks = empty(x, DTYPE)
    blocks["d"] = np.where(zeros, 0, np.float32(1) / iscale)[:, 0]
    q = _fit.quantise(groups, (scale(blocks["d"]) * sc.astype(np.float32))[..., None], -32, 31).reshape(-1, QK_K) + 32
    blocks["scales"], blocks["ql"], blocks["qh"] = sc, pack_nibbles(q & 15, 64), pack_bits(q >> 4, 2)
    return blocks


CODEC = Codec("Q6_K", DTYPE, unpack, pack, pack_weighted)
