"""IQ2_S: 16 groups of 16 elements d * (2 sc + 1) / 8 * point, sc in 4 bits, a sign for each (`block_iq2_s` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _grid_fit, _signs
from ._blocks import QK_K, bits, empty, nibbles, pack_bits, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats
from ._grids import grid

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)])


def unpack(blocks: Blocks) -> Floats:
    sc = nibbles(blocks["scales"], 1).astype(np.float32)
    step = scale(blocks["d"]) * (np.float32(0.5) + sc) * np.float32(0.25)
    index = blocks["qs"] | bits(blocks["qh"], 2, 1).astype(np.uint16) << np.uint16(8)
    magnitudes = step[..., None, None] * grid("IQ2_S")[index.reshape(-1, 16, 2)]
    return _signs.apply(magnitudes, blocks["signs"].reshape(-1, 16, 2)).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    magnitudes, signs = _signs.split(x.reshape(-1, 16, 2, 8), even=False)
    blocks = empty(x, DTYPE)
    blocks["d"], sc, index = _grid_fit.odd_multiples(magnitudes, grid("IQ2_S"), 8)
    blocks["scales"], index = pack_nibbles(sc, 1), index.reshape(-1, 32)
    blocks["qs"], blocks["qh"], blocks["signs"] = index & 255, pack_bits(index >> 8, 2, 1), signs.reshape(-1, 32)
    return blocks


CODEC = Codec("IQ2_S", DTYPE, unpack, pack)
