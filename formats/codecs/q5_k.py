"""Q5_K: 8 groups of 32 elements d * sc * q - dmin * m with q in 5 bits, sc and m in 6 (`block_q5_K`)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._affine import Affine
from ._blocks import bits, nibbles, pack_bits, pack_nibbles, pack_scales_and_mins, scales_and_mins
from ._codec import Blocks, Ints

DTYPE = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)])


def store(blocks: Blocks, sc: Ints, m: Ints, q: Ints) -> None:
    blocks["scales"] = pack_scales_and_mins(sc, m)
    blocks["qs"], blocks["qh"] = pack_nibbles(q, 32), pack_bits(q >> 4, 1)


SHAPE = Affine(
    DTYPE,
    groups=8,
    quant=31,
    scale=63,
    steps=_fit.Steps(-0.5, 0.1, 15),
    average=True,
    doubled=True,
    numbers=lambda blocks: scales_and_mins(blocks["scales"]),
    quants=lambda blocks: nibbles(blocks["qs"], 32) | bits(blocks["qh"], 1) << np.uint8(4),
    store=store,
)
CODEC = SHAPE.codec("Q5_K")
