"""Signs of the IQ types: a bit for each of eight elements, or seven bits where the number of negative ones is even."""

from __future__ import annotations

import numpy as np

from ._codec import Bytes, Floats, Ints

_SEVEN = np.arange(128, dtype=np.uint8)
EVEN_SIGNS: Bytes = _SEVEN | (np.bitwise_count(_SEVEN) & np.uint8(1)) << np.uint8(7)
"""From seven bits to eight: the last one makes their number even (`ksigns_iq2xs` in ggml-common.h)."""


def apply(magnitudes: Floats, bits: Bytes) -> Floats:
    """(..., 8) values with the signs of (...) bytes: a set bit is a negative value, the lowest bit is the first's."""
    negative = np.unpackbits(bits[..., None], axis=-1, bitorder="little").astype(bool)
    return np.where(negative, -magnitudes, magnitudes)


def split(x: Floats, *, even: bool) -> tuple[Floats, Bytes]:
    """(..., 8) values -> what a grid has to match, and their signs. Where these must be even in number and are not, the smallest
    value changes its own: the grid has to match it with the wrong sign.
    """
    negative = x < 0
    magnitudes = np.abs(x)
    if even:
        smallest = magnitudes.argmin(axis=-1)[..., None]
        change = (negative.sum(axis=-1, keepdims=True) & 1).astype(bool)
        there = np.take_along_axis(magnitudes, smallest, axis=-1)
        np.put_along_axis(magnitudes, smallest, np.where(change, -there, there), axis=-1)
        np.put_along_axis(negative, smallest, np.take_along_axis(negative, smallest, axis=-1) ^ change, axis=-1)
    return magnitudes, np.packbits(negative, axis=-1, bitorder="little")[..., 0]


def pack_sevens(signs: Ints) -> Ints:
    """(..., n) signs of eight values each, whose last follows from the others -> (...) u32, the first in the lowest bits."""
    shifts = np.arange(0, 7 * signs.shape[-1], 7, dtype=np.uint32)
    packed: Ints = np.bitwise_or.reduce((signs & 127).astype(np.uint32) << shifts, axis=-1)
    return packed
