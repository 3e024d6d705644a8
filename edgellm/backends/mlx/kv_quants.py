"""Keys and values in quants, "q8_0" and "q4_0": rows of bytes as memory/kv_types.py has them, rotated before they are rounded.

A whole layer's rows are widened at a time, and queries are rotated as keys are; see backends/cpu/kernels/attention/rotation.py.
"""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.mlx.inputs import Array
from edgellm.memory.kv_types import BLOCK, QUANTISED, kv_row_bytes

# As in backends/cpu/kernels/attention/kv_quants.py, of which the largest comes first, so that of equals it is taken.
TRIED = (1.15, 1.1, 1.05, 1.0, 0.95, 0.9, 0.85, 0.8)
PIECES = (32, 16, 8)  # numbers that are rotated together; fewer stay as they are


def kv_array(kv_type: str, heads: int, dim: int) -> Array:
    """An empty cache (1, heads, 0, numbers or bytes of a row)."""
    if kv_type in QUANTISED:
        return mx.zeros((1, heads, 0, kv_row_bytes(kv_type, dim)), mx.uint8)
    return mx.zeros((1, heads, 0, dim), {"f32": mx.float32, "f16": mx.float16}[kv_type])


def rotated(x: Array) -> Array:
    """x (..., dim) f32 in pieces, each by a Hadamard matrix, which is its own inverse."""
    first, turned = 0, []
    for size in PIECES:
        n = (x.shape[-1] - first) // size * size
        if n:
            pieces = x[..., first : first + n].reshape(*x.shape[:-1], -1, size)
            turned.append((pieces @ mx.array(_hadamard(size))).reshape(*x.shape[:-1], n))
        first += n
    return mx.concatenate([*turned, x[..., first:]], axis=-1)


@lru_cache
def _hadamard(n: int) -> npt.NDArray[np.float32]:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix * np.float32(n**-0.5)


def encode(x: Array, kv_type: str) -> Array:
    """x (..., dim) f32 as rows of bytes. A value that is not finite makes the scale of its block not finite either."""
    dim = x.shape[-1]
    whole = mx.pad(rotated(x), [(0, 0)] * (x.ndim - 1) + [(0, -dim % BLOCK)])
    blocks = whole.reshape(*x.shape[:-1], -1, BLOCK)
    step = _byte_step(blocks) if kv_type == "q8_0" else _half_byte_step(blocks)
    scales = (step + (blocks - blocks).sum(axis=-1)).astype(mx.float16)
    low, high = (-127, 127) if kv_type == "q8_0" else (-8, 7)
    rounded = mx.clip(mx.round(blocks * _inverse(scales.astype(mx.float32))[..., None]), low, high)
    if kv_type == "q8_0":
        quants = rounded.astype(mx.int8).view(mx.uint8).reshape(whole.shape)[..., :dim]
    else:  # the second half of a block stands in the upper halves of its bytes
        counted = (rounded + 8).astype(mx.uint8)
        quants = (counted[..., : BLOCK // 2] | counted[..., BLOCK // 2 :] << 4).reshape(*x.shape[:-1], -1)
    return mx.concatenate([quants, mx.view(scales, mx.uint8)], axis=-1)


def decode(rows: Array, dim: int, kv_type: str, dtype: Array) -> Array:
    """Rows of bytes as numbers (..., dim), which stay rotated."""
    n_blocks = -(-dim // BLOCK)
    scales = mx.view(mx.contiguous(rows[..., -2 * n_blocks :]), mx.float16)[..., None]
    quants = rows[..., : -2 * n_blocks]
    if kv_type == "q8_0":
        whole = mx.pad(mx.view(mx.contiguous(quants), mx.int8), [(0, 0)] * (rows.ndim - 1) + [(0, -dim % BLOCK)])
        blocks = whole.reshape(*rows.shape[:-1], n_blocks, BLOCK).astype(dtype)
    else:
        pairs = quants.reshape(*rows.shape[:-1], n_blocks, BLOCK // 2)
        blocks = mx.concatenate([pairs & 15, pairs >> 4], axis=-1).astype(dtype) - 8
    return (blocks * scales.astype(dtype)).reshape(*rows.shape[:-1], -1)[..., :dim]


def _byte_step(blocks: Array) -> Array:
    return mx.abs(blocks).max(axis=-1) / 127


def _half_byte_step(blocks: Array) -> Array:
    """The step of those tried that all values of a block are nearest to; its sign gives the largest value -8."""
    top, bottom = blocks.max(axis=-1), blocks.min(axis=-1)
    largest = mx.where(top > -bottom, top, bottom)
    steps = largest[..., None] * mx.array([-part / 8 for part in TRIED])
    values, tried = blocks[..., None, :], steps[..., None]
    off = values - mx.clip(mx.round(values * _inverse(tried)), -8, 7) * tried
    best = (off * off).sum(axis=-1).argmin(axis=-1, keepdims=True)
    return mx.take_along_axis(steps, best, axis=-1)[..., 0]


def _inverse(d: Array) -> Array:
    """1 / d, 0 where d is 0."""
    return mx.where(d == 0, 0.0, 1 / mx.where(d == 0, 1.0, d))
