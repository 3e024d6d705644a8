"""Products of several rows on MLX's CPU build, whose own take as long for each further row as for the first: weights are decoded a
piece at a time, once for all rows, and NumPy multiplies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu.affine import AffineDecoder
from edgellm.backends.mlx import device

Floats = npt.NDArray[np.float32]

CACHED = 1 << 18  # weights decoded at a time by a thread: a MiB, which stays in its core's cache
_room = threading.local()


@dataclass(frozen=True, slots=True)
class AffineRows:
    """Some rows of a matrix in groups: codes (rows, words) uint32 with steps and lows (rows, groups) f32."""

    bits: int
    quants: npt.NDArray[np.uint32]
    steps: Floats
    lows: Floats


def product_by_kernel(x: Floats, rows: int, of: Callable[[slice], AffineRows]) -> Floats:
    """x (T, columns) by a matrix of so many rows, which threads share: (T, rows)."""
    y, columns = np.empty((len(x), rows), np.float32), x.shape[1]
    step = min(max(1, CACHED // columns), -(-rows // device.cores()))

    def piece(first: int) -> None:
        some = slice(first, min(first + step, rows))
        weights = _buffer(step * columns)[: (some.stop - first) * columns].reshape(-1, columns)
        part = of(some)
        _decoder(part.bits).decode(part.bits, part.quants, part.steps, part.lows, weights)
        np.matmul(x, weights.T, out=y[:, some])

    device.for_each(piece, range(0, rows, step))
    return y


def product_of_pieces(x: Floats, pieces: Iterator[Any]) -> Floats:
    """x (T, columns) by rows that MLX decodes: it decodes a piece while NumPy multiplies the one before."""
    products, piece = list[Floats](), next(pieces)
    mx.async_eval(piece)
    for following in chain(pieces, (None,)):
        if following is not None:
            mx.async_eval(following)
        products.append(x @ np.asarray(piece).T)
        piece = following
    return np.concatenate(products, axis=-1)


def host(array: Any) -> npt.NDArray[Any]:
    """The memory of an array of MLX; bf16, which NumPy does not know, as uint16."""
    return np.asarray(mx.view(array, mx.uint16) if array.dtype == mx.bfloat16 else array)


def floats(part: npt.NDArray[Any]) -> Floats:
    """Steps or offsets of some rows as f32; uint16 stands for bf16."""
    if part.dtype == np.uint16:
        return (part.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(part, np.float32)


def _buffer(n: int) -> Floats:
    """Room of this thread."""
    if getattr(_room, "buffer", None) is None or len(_room.buffer) < n:
        _room.buffer = np.empty(max(n, CACHED), np.float32)
    buffer: Floats = _room.buffer[:n]
    return buffer


@cache
def _decoder(bits: int) -> AffineDecoder:
    return AffineDecoder({bits})
