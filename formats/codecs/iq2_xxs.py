"""IQ2_XXS: 8 groups of 32 elements d * (2 sc + 1) / 8 * point, sc in 4 bits, signs in 7 (`block_iq2_xxs` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _grid_fit, _signs
from ._blocks import QK_K, empty, scale
from ._codec import Blocks, Codec, Floats
from ._grids import grid

DTYPE = np.dtype([("d", "<f2"), ("groups", [("qs", "u1", 4), ("signs_and_scale", "<u4")], 8)])
_SEVENS = np.arange(0, 28, 7, dtype=np.uint32)


def unpack(blocks: Blocks) -> Floats:
    word = blocks["groups"]["signs_and_scale"]
    step = scale(blocks["d"]) * (np.float32(0.5) + (word >> 28).astype(np.float32)) * np.float32(0.25)
    magnitudes = step[..., None, None] * grid("IQ2_XXS")[blocks["groups"]["qs"]]
    return _signs.apply(magnitudes, _signs.EVEN_SIGNS[word[..., None] >> _SEVENS & 127]).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    magnitudes, signs = _signs.split(x.reshape(-1, 8, 4, 8), even=True)
    blocks = empty(x, DTYPE)
    blocks["d"], sc, blocks["groups"]["qs"] = _grid_fit.odd_multiples(magnitudes, grid("IQ2_XXS"), 8)
    blocks["groups"]["signs_and_scale"] = _signs.pack_sevens(signs) | sc << 28
    return blocks


CODEC = Codec("IQ2_XXS", DTYPE, unpack, pack)
