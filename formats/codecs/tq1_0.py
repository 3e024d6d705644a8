"""TQ1_0: 256 elements d * t, t in -1..1, five to a byte as base-3 digits of a fraction of 256 (`block_tq1_0` in ggml-common.h)."""

from __future__ import annotations

import numpy as np

from ._blocks import empty, inverse, round_away, scale
from ._codec import Blocks, Bytes, Codec, Floats

DTYPE = np.dtype([("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")])
_PARTS = ((0, 32, 5), (32, 48, 5), (48, 52, 4))  # bytes first to end - 1, and how many digits they have each
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def unpack(blocks: Blocks) -> Floats:
    return scale(blocks["d"]) * (digits(blocks).astype(np.float32) - np.float32(1))


def digits(blocks: Blocks) -> Bytes:
    """t + 1 of each element: (blocks, 256)."""
    packed = np.concatenate([blocks["qs"], blocks["qh"]], axis=-1)
    parts = []
    for first, end, digits in _PARTS:
        shifted: Bytes = packed[:, None, first:end] * _POWERS[:digits, None]  # the digits before are lost above the byte
        parts.append((shifted.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(blocks), -1))
    return np.concatenate(parts, axis=-1)


def pack(x: Floats) -> Blocks:
    widest = np.abs(x).max(axis=-1, keepdims=True)
    trits = (round_away(x * inverse(widest)) + 1).astype(np.uint16)
    parts, taken = [], 0
    for first, end, digits in _PARTS:
        n = (end - first) * digits
        group = trits[:, taken : taken + n].reshape(-1, digits, end - first)
        number = (group * _POWERS[::-1][:digits, None]).sum(axis=1, dtype=np.uint16)
        parts.append((number * 256 + 242) // 243)  # rounded up, so that digits come out again
        taken += n
    blocks = empty(x, DTYPE)
    blocks["d"] = widest[:, 0]
    blocks["qs"], blocks["qh"] = np.concatenate(parts[:2], axis=-1), parts[2]
    return blocks


CODEC = Codec("TQ1_0", DTYPE, unpack, pack)
