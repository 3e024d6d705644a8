"""MXFP4: 32 E2M1 elements with one E8M0 scale (OCP Microscaling v1.0; `block_mxfp4` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import empty, nibbles, pack_nibbles
from ._codec import Blocks, Bytes, Codec, Floats

DTYPE = np.dtype([("e", "u1"), ("qs", "u1", 16)])
# Twice the E2M1 values, so that they are whole numbers; the scale is halved instead.
VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def unpack(blocks: Blocks) -> Floats:
    return _half_scale(blocks["e"])[:, None] * VALUES[nibbles(blocks["qs"])]


def pack(x: Floats) -> Blocks:
    widest = np.abs(x).max(axis=-1)
    blocks = empty(x, DTYPE)
    blocks["e"] = np.where(widest > 0, np.maximum(np.frexp(widest)[1] - 3 + 127, 0), 0).astype(np.uint8)
    candidates = _half_scale(blocks["e"])[:, None, None] * VALUES
    blocks["qs"] = pack_nibbles(np.abs(candidates - x[..., None]).argmin(axis=-1).astype(np.uint8))
    return blocks


def _half_scale(e: Bytes) -> Floats:
    """2^(e - 128); for e < 2 a subnormal number (`ggml_e8m0_to_fp32_half` in ggml-impl.h)."""
    exponent = e.astype(np.uint32)
    pattern = np.where(exponent < 2, np.uint32(0x200000) << exponent, (exponent - 1) << 23)
    return pattern.astype(np.uint32).view(np.float32)


CODEC = Codec("MXFP4", DTYPE, unpack, pack)
