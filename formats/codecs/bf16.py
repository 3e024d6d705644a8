"""BF16: the upper half of an IEEE single per element (`ggml_compute_fp32_to_bf16` in ggml-impl.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import empty
from ._codec import Blocks, Codec, Floats

DTYPE = np.dtype([("x", "<u2")])


def unpack(blocks: Blocks) -> Floats:
    return (blocks["x"].astype(np.uint32) << 16).view(np.float32)[:, None]


def pack(x: Floats) -> Blocks:
    u = x[:, 0].view(np.uint32)
    is_nan = (u & 0x7FFFFFFF) > 0x7F800000
    u = np.where(is_nan, u & 0xFFFF0000 | 64 << 16, u)  # a quiet NaN: rounding must not make it inf
    blocks = empty(x, DTYPE)
    blocks["x"] = (u.astype(np.uint64) + 0x7FFF + (u >> 16 & 1)) >> 16
    return blocks


CODEC = Codec("BF16", DTYPE, unpack, pack)
