"""Q4_K: 8 groups of 32 elements d * sc * q - dmin * m with q in 4 bits, sc and m in 6 (`block_q4_K`)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import QK_K, empty, nibbles, pack_nibbles, pack_scales_and_mins, scale, scales_and_mins
from ._codec import Blocks, Codec, Floats, Ints

DTYPE = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)])


def unpack(blocks: Blocks) -> Floats:
    sc, m = scales_and_mins(blocks["scales"])
    step, low = scale(blocks["d"]) * sc.astype(np.float32), scale(blocks["dmin"]) * m.astype(np.float32)
    q = nibbles(blocks["qs"], 32).reshape(-1, 8, 32).astype(np.float32)
    return (step[..., None] * q - low[..., None]).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    groups = x.reshape(-1, 8, 32)
    average = np.sqrt(_fit.total(groups * groups) / np.float32(32))
    step, low, _ = _fit.affine(groups, average + np.abs(groups), 15, _fit.Steps(-1.0, 0.1, 20))
    step, low = step[..., 0], low[..., 0]
    top, high = np.maximum(step.max(axis=-1, keepdims=True), 0), low.max(axis=-1, keepdims=True)
    sc = _fit.by_widest(step, top, 63)
    m = _fit.by_widest(low, high, 63)
    return _blocks(x, top / np.float32(63), high / np.float32(63), sc, m)


def pack_weighted(x: Floats, importance: Floats, _: Floats) -> Blocks:
    groups = x.reshape(-1, 8, 32)
    mean_square = np.float32(2) * _fit.total(x * x) / np.float32(QK_K)
    weights = _fit.importance_weights(x, importance, mean_square).reshape(groups.shape)
    step, low, _ = _fit.affine(groups, weights, 15, _fit.WITH_IMPORTANCE)
    costs = _fit.total(weights)[..., 0]
    d, sc = _fit.positive(step[..., 0], costs, 63)
    dmin, m = _fit.positive(low[..., 0], costs, 63)
    return _blocks(x, d, dmin, sc.astype(np.int32), m.astype(np.int32))


def _blocks(x: Floats, d: Floats, dmin: Floats, sc: Ints, m: Ints) -> Blocks:
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["dmin"] = d[:, 0], dmin[:, 0]
    step, low = scale(blocks["d"]) * sc.astype(np.float32), scale(blocks["dmin"]) * m.astype(np.float32)
    q = _fit.quantise(x.reshape(-1, 8, 32) + low[..., None], step[..., None], 0, 15).reshape(-1, QK_K)
    blocks["scales"], blocks["qs"] = pack_scales_and_mins(sc, m), pack_nibbles(q, 32)
    return blocks


CODEC = Codec("Q4_K", DTYPE, unpack, pack, pack_weighted)
