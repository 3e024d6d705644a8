"""Q4_K: 8 groups of 32 elements d * sc * q - dmin * m with q in 4 bits, sc and m in 6 (`block_q4_K`)."""
from __future__ import annotations

import numpy as np

from . import _fit
from ._blocks import QK_K, empty, nibbles, pack_nibbles, pack_scales_and_mins, scale, scales_and_mins
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)])


def unpack(blocks: Blocks) -> Floats:
    sc, m = scales_and_mins(blocks["scales"])
    step, low = scale(blocks["d"]) * sc.astype(np.float32), scale(blocks["dmin"]) * m.astype(np.float32)
    q = nibbles(blocks["qs"], 32).reshape(-1, 8, 32).astype(np.float32)
    return (step[..., None] * q - low[..., None]).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    groups = x.reshape(-1, 8, 32)
    step, low = (a[..., 0] for a in _fit.affine(groups, 15))
    blocks = empty(x, DTYPE)
    blocks["d"], blocks["dmin"] = step.max(axis=-1) / np.float32(63), low.max(axis=-1) / np.float32(63)
    d, dmin = scale(blocks["d"]), scale(blocks["dmin"])
    sc, m = _fit.quantise(step, d, 0, 63), _fit.quantise(low, dmin, 0, 63)
    q = _fit.quantise(groups + (dmin * m)[..., None], (d * sc)[..., None], 0, 15)
    blocks["scales"], blocks["qs"] = pack_scales_and_mins(sc, m), pack_nibbles(q.reshape(-1, QK_K), 32)
    return blocks


CODEC = Codec("Q4_K", DTYPE, unpack, pack)
