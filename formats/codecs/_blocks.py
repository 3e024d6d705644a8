"""Bit packing that several block types share: nibbles, fifth bits, and the 6-bit scales of the K types."""

from __future__ import annotations

import numpy as np

from ._codec import Blocks, Bytes, Floats, Ints

QK_K = 256  # elements of a K block


def empty(like: Floats, dtype: np.dtype[np.void]) -> Blocks:
    """One zeroed block of `dtype` per row of `like`."""
    return np.zeros(len(like), dtype)


def scale(field: Ints) -> Floats:
    """f16 scales of (blocks,) as (blocks, 1) f32."""
    return field.astype(np.float32)[:, None]


def inverse(d: Floats) -> Floats:
    """1 / d, and 0 where d is 0."""
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


def round_away(x: Floats) -> Floats:
    """Nearest integer, halves away from zero (C's roundf)."""
    a = np.abs(x)
    floor = np.floor(a)
    rounded: Floats = np.sign(x) * (floor + np.floor(2 * (a - floor)))
    return rounded


def signed_extreme(x: Floats) -> Floats:
    """The value of largest magnitude of each row, with its sign: (rows, n) -> (rows, 1)."""
    extreme: Floats = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[:, None], axis=-1)
    return extreme


def nibbles(qs: Bytes, half: int = 16) -> Bytes:
    """(blocks, bytes) -> (blocks, 2 * bytes): per `half` bytes first the low nibbles, then the high ones."""
    groups = qs.reshape(len(qs), -1, 1, half) >> np.array([0, 4], np.uint8)[:, None]
    return (groups & np.uint8(15)).reshape(len(qs), -1)


def pack_nibbles(quants: Ints, half: int = 16) -> Bytes:
    """The way back: (blocks, n) quants 0..15 -> (blocks, n / 2)."""
    groups = quants.astype(np.uint8).reshape(len(quants), -1, 2, half)
    return (groups[:, :, 0] & np.uint8(15) | groups[:, :, 1] << np.uint8(4)).reshape(len(quants), -1)


def bits(field: Bytes, width: int, per: int = 32) -> Bytes:
    """(blocks, bytes) -> (blocks, bytes * 8 / width): per `per` bytes the lowest `width` bits of all, then the next."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    groups = field.reshape(len(field), -1, 1, per) >> shifts
    return (groups & np.uint8((1 << width) - 1)).reshape(len(field), -1)


def pack_bits(quants: Ints, width: int, per: int = 32) -> Bytes:
    """The way back: (blocks, n) quants of `width` bits -> (blocks, n * width / 8)."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    groups = quants.astype(np.uint8).reshape(len(quants), -1, 8 // width, per) << shifts
    packed: Bytes = np.bitwise_or.reduce(groups, axis=2).reshape(len(quants), -1)
    return packed


def fifth_bits(qh: Bytes) -> Bytes:
    """(blocks, 4) -> (blocks, 32): one bit per element, in element order."""
    return np.unpackbits(qh, axis=-1, bitorder="little")


def pack_fifth_bits(quants: Ints) -> Bytes:
    """(blocks, 32) quants 0..31 -> (blocks, 4)."""
    return np.packbits(quants.astype(np.uint8) >> np.uint8(4), axis=-1, bitorder="little")


def scales_and_mins(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 12 bytes of Q4_K and Q5_K -> 8 scales and 8 mins of 6 bits each (`get_scale_min_k4` in ggml-quants.c)."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, high & 15 | low >> 2 & 48], axis=-1)
    mins = np.concatenate([middle & 63, high >> 4 | middle >> 2 & 48], axis=-1)
    return scales, mins


def pack_scales_and_mins(scales: Ints, mins: Ints) -> Bytes:
    """The way back: two (blocks, 8) of 6 bits -> (blocks, 12)."""
    low = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    middle = mins[:, :4] | (mins[:, 4:] >> 4) << 6
    high = scales[:, 4:] & 15 | (mins[:, 4:] & 15) << 4
    return np.concatenate([low, middle, high], axis=-1).astype(np.uint8)
