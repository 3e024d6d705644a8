"""The interface of a codec: the layout of one block, and the functions between blocks and float32 values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ggml_types import TYPES_BY_NAME

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[Any]  # integer quants of any width
Blocks = npt.NDArray[np.void]  # structured: one element is one block

_GROUP_ELEMENTS = 1 << 18  # values decoded at a time: bounds the temporaries to a few MiB for any tensor


@dataclass(frozen=True, slots=True)
class Codec:
    """A block type in NumPy: `dtype` is one block's layout, `n` its elements. Functions take blocks, methods take rows.

    unpack: (blocks,) of dtype -> (blocks, n) f32, bit-equal to `gguf.quants.dequantize`. pack: the way back.
    pack_weighted: the way back where errors of some columns cost more: values, their importance, both (blocks, n), and the mean
    square of the row that each block belongs to (blocks, 1). None: such a type does not search, or not by importance.
    """

    name: str
    dtype: np.dtype[np.void]
    unpack: Callable[[Blocks], Floats]
    pack: Callable[[Floats], Blocks]
    pack_weighted: Callable[[Floats, Floats, Floats], Blocks] | None = None
    n: int = field(init=False)

    def __post_init__(self) -> None:
        kind = TYPES_BY_NAME[self.name]
        assert self.dtype.itemsize == kind.block_bytes, f"{self.name}: {self.dtype.itemsize} != {kind.block_bytes}"
        object.__setattr__(self, "n", kind.block)

    def dequantize(self, raw: Bytes) -> Floats:
        """(..., row bytes) uint8 -> (..., row elements) f32. ValueError if a row is not a whole number of blocks."""
        *leading, row = raw.shape
        size = self.dtype.itemsize
        if row % size:
            raise ValueError(f"rows of {row} bytes are not a whole number of {self.name} blocks of {size} bytes")
        blocks = np.ascontiguousarray(raw).reshape(-1).view(self.dtype)
        out = np.empty((len(blocks), self.n), np.float32)
        with np.errstate(all="ignore"):  # damaged scales may be inf or NaN: they decode to inf or NaN
            for group in self._groups(len(blocks)):
                out[group] = self.unpack(blocks[group])
        return out.reshape(*leading, row // size * self.n)

    def quantize(self, values: npt.NDArray[np.floating[Any]], importance: Floats | None = None) -> Bytes:
        """(..., row elements) float -> (..., row bytes) uint8. ValueError if a row is not a whole number of blocks.

        importance (row elements,): how much squared errors of each column cost, as an importance matrix has it.
        """
        *leading, row = values.shape
        if row % self.n:
            raise ValueError(f"rows of {row} elements are not a whole number of {self.name} blocks of {self.n}")
        rows = np.ascontiguousarray(values, np.float32).reshape(-1, row)
        x = rows.reshape(-1, self.n)
        blocks = np.zeros(len(x), self.dtype)
        with np.errstate(all="ignore"):  # blocks of zeros divide by zero on the way; the result is checked
            if importance is not None and self.pack_weighted is not None:
                step, of_row = max(_GROUP_ELEMENTS // row, 1), row // self.n
                for first in range(0, len(rows), step):
                    some = rows[first : first + step]
                    mean_square = np.add.accumulate(some * some, axis=1)[:, -1:] / np.float32(row)
                    weights = np.broadcast_to(np.asarray(importance, np.float32), some.shape).reshape(-1, self.n)
                    blocks[first * of_row : (first + step) * of_row] = self.pack_weighted(
                        some.reshape(-1, self.n), weights, np.repeat(mean_square, of_row, axis=0)
                    )
            else:
                for group in self._groups(len(x)):
                    blocks[group] = self.pack(x[group])
        return blocks.view(np.uint8).reshape(*leading, row // self.n * self.dtype.itemsize)

    def _groups(self, n_blocks: int) -> list[slice]:
        step = max(_GROUP_ELEMENTS // self.n, 1)
        return [slice(first, first + step) for first in range(0, n_blocks, step)]
