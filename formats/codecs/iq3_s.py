"""IQ3_S: 8 groups of 32 elements d * (2 sc + 1) * point, sc in 4 bits, a sign for each (`block_iq3_s` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from . import _grid_fit, _signs
from ._blocks import QK_K, bits, empty, nibbles, pack_bits, pack_nibbles, scale
from ._codec import Blocks, Codec, Floats, Ints
from ._grids import grid

DTYPE = np.dtype([("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)])


def steps(blocks: Blocks) -> Floats:
    """d * (2 sc + 1) of each group: (blocks, 8)."""
    return scale(blocks["d"]) * (1 + 2 * nibbles(blocks["scales"], 1)).astype(np.float32)


def points(blocks: Blocks) -> Ints:
    """Coordinates without signs, (blocks, 8, 4, 8) i8."""
    index = blocks["qs"] | bits(blocks["qh"], 1, 1).astype(np.uint16) << np.uint16(8)
    coordinates: Ints = grid("IQ3_S")[index].reshape(-1, 8, 4, 8)
    return coordinates


def unpack(blocks: Blocks) -> Floats:
    magnitudes = steps(blocks)[..., None, None] * points(blocks)
    return _signs.apply(magnitudes, blocks["signs"].reshape(-1, 8, 4)).reshape(-1, QK_K)


def pack(x: Floats) -> Blocks:
    magnitudes, signs = _signs.split(x.reshape(-1, 8, 4, 8), even=False)
    fours = magnitudes.reshape(-1, 8, 8, 4)
    blocks = empty(x, DTYPE)
    blocks["d"], sc, index = _grid_fit.odd_multiples(fours, grid("IQ3_S"))
    blocks["scales"], index = pack_nibbles(sc, 1), index.reshape(-1, 64)
    blocks["qs"], blocks["qh"], blocks["signs"] = index & 255, pack_bits(index >> 8, 1, 1), signs.reshape(-1, 32)
    return blocks


CODEC = Codec("IQ3_S", DTYPE, unpack, pack)
