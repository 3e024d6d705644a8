"""IQ3_XXS: 8 groups of 32 elements d * (2 sc + 1) / 4 * point, sc in 4 bits, signs in 7 (`block_iq3_xxs` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _grid_fit, _signs
from ._blocks import QK_K, empty, scale
from ._codec import Blocks, Codec, Floats
from ._grids import grid

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 64), ("signs_and_scales", "<u4", 8)])
_SEVENS = np.arange(0, 28, 7, dtype=np.uint32)


def unpack(blocks: Blocks) -> Floats:
    word = blocks["signs_and_scales"]
    step = scale(blocks["d"]) * (np.float32(0.5) + (word >> 28).astype(np.float32)) * np.float32(0.5)
    magnitudes = step[..., None, None] * grid("IQ3_XXS")[blocks["qs"].reshape(-1, 8, 8)]
    signs = _signs.EVEN_SIGNS[word[..., None] >> _SEVENS & 127]
    return _signs.apply(magnitudes.reshape(-1, 8, 4, 8), signs).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    magnitudes, signs = _signs.split(x.reshape(-1, 8, 4, 8), even=True)
    fours = magnitudes.reshape(-1, 8, 8, 4)
    blocks = empty(x, DTYPE)
    blocks["d"], sc, index = _grid_fit.odd_multiples(fours, grid("IQ3_XXS"), 4)
    blocks["qs"] = index.reshape(-1, 64)
    blocks["signs_and_scales"] = _signs.pack_sevens(signs) | sc << 28
    return blocks


CODEC = Codec("IQ3_XXS", DTYPE, unpack, pack)
