"""IQ2_XS: 16 groups of 16 elements d * (2 sc + 1) / 8 * point, sc in 4 bits, signs in 7 (`block_iq2_xs` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _grid_fit, _signs
from ._blocks import QK_K, empty, nibbles, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats
from ._grids import grid

DTYPE = np.dtype([("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)])


def unpack(blocks: Blocks) -> Floats:
    sc = nibbles(blocks["scales"], 1).astype(np.float32)
    step = scale(blocks["d"]) * (np.float32(0.5) + sc) * np.float32(0.25)
    qs = blocks["qs"].reshape(-1, 16, 2)
    magnitudes = step[..., None, None] * grid("IQ2_XS")[qs & 511]
    return _signs.apply(magnitudes, _signs.EVEN_SIGNS[qs >> 9]).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    magnitudes, signs = _signs.split(x.reshape(-1, 16, 2, 8), even=True)
    blocks = empty(x, DTYPE)
    blocks["d"], sc, index = _grid_fit.odd_multiples(magnitudes, grid("IQ2_XS"), 8)
    blocks["scales"] = pack_nibbles(sc, 1)
    blocks["qs"] = (index | (signs & 127).astype(np.intp) << 9).reshape(-1, 32)
    return blocks


CODEC = Codec("IQ2_XS", DTYPE, unpack, pack)
