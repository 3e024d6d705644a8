"""Q4_K: 8 groups of 32 elements d * sc * q - dmin * m with q in 4 bits, sc and m in 6 (`block_q4_K`)."""

from __future__ import annotations

import numpy as np

from . import _fit
from ._affine import Affine
from ._blocks import nibbles, pack_nibbles, pack_scales_and_mins, scales_and_mins
from ._codec import Blocks, Ints

DTYPE = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)])


def store(blocks: Blocks, sc: Ints, m: Ints, q: Ints) -> None:
    blocks["scales"], blocks["qs"] = pack_scales_and_mins(sc, m), pack_nibbles(q, 32)


SHAPE = Affine(
    DTYPE,
    groups=8,
    quant=15,
    scale=63,
    steps=_fit.Steps(-1.0, 0.1, 20),
    average=True,
    doubled=True,
    numbers=lambda blocks: scales_and_mins(blocks["scales"]),
    quants=lambda blocks: nibbles(blocks["qs"], 32),
    store=store,
)
CODEC = SHAPE.codec("Q4_K")
