"""NVFP4: 64 E2M1 elements with four scales in unsigned E4M3 (`block_nvfp4` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import empty, nibbles, pack_nibbles
from ._codec import Blocks, Bytes, Codec, Floats
from .mxfp4 import VALUES

DTYPE = np.dtype([("d", "u1", 4), ("qs", "u1", 32)])
_WIDEST = np.float32(448)  # of E4M3; 0x7F would be NaN and counts as 0 here


def unpack(blocks: Blocks) -> Floats:
    elements = VALUES[nibbles(blocks["qs"], 8)].reshape(-1, 4, 16)
    return (_half_scale(blocks["d"])[..., None] * elements).reshape(-1, 64)


def pack(x: Floats) -> Blocks:
    groups = x.reshape(-1, 4, 16)
    blocks = empty(x, DTYPE)
    blocks["d"] = _e4m3(np.abs(groups).max(axis=-1) / np.float32(6))
    candidates = _half_scale(blocks["d"])[..., None, None] * VALUES
    index = np.abs(candidates - groups[..., None]).argmin(axis=-1)
    blocks["qs"] = pack_nibbles(index.reshape(-1, 64), 8)
    return blocks


def _half_scale(e: Bytes) -> Floats:
    """Half the scale, because elements are doubled (`ggml_ue4m3_to_fp32` in ggml-impl.h). The sign bit is ignored."""
    exponent, mantissa = (e >> 3 & 15).astype(np.int32), (e & 7).astype(np.float32)
    normal = np.ldexp(np.float32(1) + mantissa / np.float32(8), exponent - 8)
    value = np.where(exponent == 0, np.ldexp(mantissa, -10), normal)
    return np.where(e == 0x7F, np.float32(0), value).astype(np.float32)


def _e4m3(x: Floats) -> Bytes:
    """The nearest E4M3, halves upwards, at most 448 (`ggml_fp32_to_ue4m3`)."""
    bits = np.minimum(x, _WIDEST).astype(np.float32).view(np.uint32)
    tiny = np.minimum((np.minimum(x, _WIDEST) * 512 + np.float32(0.5)).astype(np.uint32), 7)
    rounded = (bits >> 20) + (bits >> 19 & 1) - (120 << 3)  # exponent and mantissa; the exponent's bias is 7, not 127
    normal = np.minimum(rounded, 0x7E)
    return np.where(bits >> 23 <= 120, tiny, normal).astype(np.uint8)


CODEC = Codec("NVFP4", DTYPE, unpack, pack)
