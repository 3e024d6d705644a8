"""IQ1_M: 16 groups of 16 elements d * (2 sc + 1) * (point + or - 1/8), sc in 3 bits, d's f16 in the top bits of the scales
(`block_iq1_m` in ggml-common.h).
"""

from __future__ import annotations

import numpy as np

from . import _grid_fit
from ._blocks import QK_K, bits, empty, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats
from ._grids import grid
from .iq1_s import SHIFTS

DTYPE = np.dtype([("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)])
_THREES = np.arange(0, 12, 3, dtype=np.uint16)
_QUARTERS = np.array([12, 8, 4, 0], np.uint16)  # of the f16 of d, a quarter in each of the words


def unpack(blocks: Blocks) -> Floats:
    words = blocks["scales"]
    d = np.bitwise_or.reduce((words & np.uint16(0xF000)) >> _QUARTERS, axis=-1).view(np.float16)
    step = scale(d) * (2 * (words[..., None] >> _THREES & 7).reshape(-1, 16) + 1).astype(np.float32)
    high = bits(blocks["qh"], 4, 1)
    shift = np.array(SHIFTS, np.float32)[high >> 3]
    index = blocks["qs"] | (high & 7).astype(np.uint16) << np.uint16(8)
    points = (grid("IQ1_S")[index] + shift[..., None]).reshape(-1, 16, 2, 8)
    values: Floats = step[..., None, None] * points
    return values.reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    groups = x.reshape(-1, 16, 2, 8)
    blocks = empty(x, DTYPE)
    d, sc = _grid_fit.odd_scales(_grid_fit.steps(groups, grid("IQ1_S"), SHIFTS, shared=False), 7)
    step = d[:, None] * (2 * sc + 1).astype(np.float32)
    index, which = (a.reshape(-1, 32) for a in _grid_fit.choose(groups, step, grid("IQ1_S"), SHIFTS, shared=False))
    blocks["qs"], blocks["qh"] = index & 255, pack_nibbles(index >> 8 | which << 3, 1)
    half = d.astype(np.float16).view(np.uint16)[:, None]
    blocks["scales"] = np.bitwise_or.reduce(sc.reshape(-1, 4, 4) << _THREES, axis=-1) | (half << _QUARTERS & 0xF000)
    return blocks


CODEC = Codec("IQ1_M", DTYPE, unpack, pack)
