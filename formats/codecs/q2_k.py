"""Q2_K: 16 groups of 16 elements d * sc * q - dmin * m with q in 2 bits, sc and m in 4 (`block_q2_K`)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._affine import Affine
from ._blocks import bits, pack_bits
from ._codec import Blocks, Ints

DTYPE = np.dtype([("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")])


def store(blocks: Blocks, sc: Ints, m: Ints, q: Ints) -> None:
    blocks["scales"], blocks["qs"] = sc | m << 4, pack_bits(q, 2)


SHAPE = Affine(
    DTYPE,
    groups=16,
    quant=3,
    scale=15,
    steps=_fit.Steps(-0.5, 0.1, 15, absolute=True),
    average=False,
    doubled=False,
    numbers=lambda blocks: (blocks["scales"] & 15, blocks["scales"] >> 4),
    quants=lambda blocks: bits(blocks["qs"], 2),
    store=store,
)
CODEC = SHAPE.codec("Q2_K")
