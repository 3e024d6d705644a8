"""Q2_K: 16 groups of 16 elements d * sc * q - dmin * m with q in 2 bits, sc and m in 4 (`block_q2_K`)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import QK_K, bits, empty, pack_bits, scale
from ._codec import Blocks, Codec, Floats, Ints

DTYPE = np.dtype([("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")])


def unpack(blocks: Blocks) -> Floats:
    step = scale(blocks["d"]) * (blocks["scales"] & 15).astype(np.float32)
    low = scale(blocks["dmin"]) * (blocks["scales"] >> 4).astype(np.float32)
    q = bits(blocks["qs"], 2).reshape(-1, 16, 16).astype(np.float32)
    return (step[..., None] * q - low[..., None]).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    groups = x.reshape(-1, 16, 16)
    step, low, _ = _fit.affine(groups, np.abs(groups), 3, _fit.Steps(-0.5, 0.1, 15, absolute=True))
    step, low = step[..., 0], low[..., 0]
    top, high = np.maximum(step.max(axis=-1, keepdims=True), 0), low.max(axis=-1, keepdims=True)
    sc = _fit.by_widest(step, top, 15)
    m = _fit.by_widest(low, high, 15)
    return _blocks(x, top / np.float32(15), high / np.float32(15), sc, m)


def pack_weighted(x: Floats, importance: Floats, _: Floats) -> Blocks:
    groups = x.reshape(-1, 16, 16)
    mean_square = _fit.total(x * x) / np.float32(QK_K)
    weights = _fit.importance_weights(x, importance, mean_square).reshape(groups.shape)
    step, low, _ = _fit.affine(groups, weights, 3, _fit.WITH_IMPORTANCE)
    costs = _fit.total(weights)[..., 0]
    d, sc = _fit.positive(step[..., 0], costs, 15)
    dmin, m = _fit.positive(low[..., 0], costs, 15)
    return _blocks(x, d, dmin, sc.astype(np.int32), m.astype(np.int32))


def _blocks(x: Floats, d: Floats, dmin: Floats, sc: Ints, m: Ints) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["dmin"] = d[:, 0], dmin[:, 0]
    step, low = scale(blocks["d"]) * sc.astype(np.float32), scale(blocks["dmin"]) * m.astype(np.float32)
    q = _fit.quantise(x.reshape(-1, 16, 16) + low[..., None], step[..., None], 0, 3).reshape(-1, QK_K)
    blocks["scales"], blocks["qs"] = sc | m << 4, pack_bits(q, 2)
    return blocks


CODEC = Codec("Q2_K", DTYPE, unpack, pack, pack_weighted)
