"""Products on MLX's CPU build, whose own decode weights anew for each row: kernels multiply few rows by groups of affine quants and
decode them a piece at a time for many, which NumPy multiplies.
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

from edgellm.backends.cpu.affine import KINDS, AffineKernels, Ends
from edgellm.backends.mlx import device

Floats = npt.NDArray[np.float32]

CACHED = 1 << 18  # weights decoded at a time by a thread: a MiB, which stays in its core's cache
FEW = 16  # rows up to which no decoded weight is stored; of more NumPy's products are faster
SMALL = 1 << 21  # products for each thread, at least: fewer take less time than another thread needs to wake
_room = threading.local()


@dataclass(frozen=True, slots=True)
class AffineRows:
    """Some rows of a matrix in groups: codes (rows, words) uint32 with steps and lows (rows, groups) of one type."""

    bits: int
    quants: npt.NDArray[np.uint32]
    steps: Ends
    lows: Ends


def product_by_kernel(x: Floats, rows: int, of: Callable[[slice], AffineRows]) -> Floats:
    """x (T, columns) by a matrix of so many rows, which threads share: (T, rows). Up to `FEW` of x have the bits of each alone."""
    y, columns, few = np.empty((len(x), rows), np.float32), x.shape[1], len(x) <= FEW
    threads = min(device.cores(), -(-len(x) * rows * columns // SMALL))
    step = -(-rows // threads)
    if not few:
        step = min(max(1, CACHED // columns), step)

    def piece(first: int) -> None:
        some = slice(first, min(first + step, rows))
        part, out = of(some), y[:, some]
        kernels = _kernels(part.bits, KINDS[part.steps.dtype.char])
        if few:
            kernels.product(part.bits, part.quants, part.steps, part.lows, x, out)
            return
        weights = _buffer(step * columns)[: (some.stop - first) * columns].reshape(-1, columns)
        kernels.decode(part.bits, part.quants, floats(part.steps), floats(part.lows), weights)
        np.matmul(x, weights.T, out=out)

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
def _kernels(bits: int, kind: str) -> AffineKernels:
    return AffineKernels({bits}, {kind})
