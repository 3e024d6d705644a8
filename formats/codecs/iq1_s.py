"""IQ1_S: 8 groups of 32 elements d * (2 sc + 1) * (point + or - 1/8), sc in 3 bits (`block_iq1_s` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _grid_fit
from ._blocks import QK_K, empty, scale
from ._codec import Blocks, Codec, Floats, Ints
from ._grids import grid

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)])
SHIFTS = (0.125, -0.125)
_THREES = np.arange(0, 12, 3, dtype=np.uint16)


def unpack(blocks: Blocks) -> Floats:
    step, shift, index = parts(blocks)
    values: Floats = step[..., None, None] * (grid("IQ1_S")[index] + shift[..., None, None])
    return values.reshape(-1, QK_K)


def parts(blocks: Blocks) -> tuple[Floats, Floats, Ints]:
    """Of each group its step and its shift, both (blocks, 8), and its points (blocks, 8, 4)."""
    qh = blocks["qh"]
    step = scale(blocks["d"]) * (2 * (qh >> 12 & 7) + 1).astype(np.float32)
    index = blocks["qs"].reshape(-1, 8, 4) | (qh[..., None] >> _THREES & 7) << np.uint16(8)
    return step, np.array(SHIFTS, np.float32)[qh >> 15], index


def pack(x: Floats) -> Blocks:
    groups = x.reshape(-1, 8, 4, 8)
    blocks = empty(x, DTYPE)
    blocks["d"], sc = _grid_fit.odd_scales(_grid_fit.steps(groups, grid("IQ1_S"), SHIFTS), 7)
    step = scale(blocks["d"]) * (2 * sc + 1).astype(np.float32)
    index, which = _grid_fit.choose(groups, step, grid("IQ1_S"), SHIFTS)
    blocks["qs"] = (index & 255).reshape(-1, 32)
    high = np.bitwise_or.reduce(index >> 8 << _THREES, axis=-1)
    blocks["qh"] = high | sc << 12 | which[..., 0] << 15
    return blocks


CODEC = Codec("IQ1_S", DTYPE, unpack, pack)
