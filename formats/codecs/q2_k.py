"""Q2_K: 16 groups of 16 elements d * sc * q - dmin * m with q in 2 bits, sc and m in 4 (`block_q2_K`)."""
from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import QK_K, bits, empty, pack_bits, scale
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")])


def unpack(blocks: Blocks) -> Floats:
    step = scale(blocks["d"]) * (blocks["scales"] & 15).astype(np.float32)
    low = scale(blocks["dmin"]) * (blocks["scales"] >> 4).astype(np.float32)
    q = bits(blocks["qs"], 2).reshape(-1, 16, 16).astype(np.float32)
    return (step[..., None] * q - low[..., None]).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    groups = x.reshape(-1, 16, 16)
    step, low = (a[..., 0] for a in _fit.affine(groups, 3))
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["dmin"] = step.max(axis=-1) / np.float32(15), low.max(axis=-1) / np.float32(15)
    d, dmin = scale(blocks["d"]), scale(blocks["dmin"])
    sc, m = _fit.quantise(step, d, 0, 15), _fit.quantise(low, dmin, 0, 15)
    q = _fit.quantise(groups + (dmin * m)[..., None], (d * sc)[..., None], 0, 3)
    blocks["scales"], blocks["qs"] = sc | m << 4, pack_bits(q.reshape(-1, QK_K), 2)
    return blocks


CODEC = Codec("Q2_K", DTYPE, unpack, pack)
