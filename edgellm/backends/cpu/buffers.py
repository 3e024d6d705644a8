"""Memory of one plan: row buffers that values share when their lives do not overlap, all aligned to cache lines."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64


def aligned(nbytes: int) -> tuple[npt.NDArray[np.uint8], int]:
    """Zeroed memory and the aligned address in it; pages are touched by their first user, not here."""
    block = np.zeros(nbytes + ALIGNMENT, np.uint8)
    return block, -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Value:
    """Where the rows of a graph value lie: first row's address, bytes between rows, columns, and the buffer they belong to."""

    address: int
    stride: int
    n: int
    buffer: int


class Arena:
    """Hands out buffers by size and takes them back; a buffer handed out again is as good as a new one."""

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[np.uint8]] = []
        self._addresses: list[int] = []
        self._sizes: list[int] = []
        self._free: set[int] = set()

    def take(self, rows: int, row_bytes: int, n: int) -> Value:
        """A buffer of `rows` rows of at least `row_bytes` bytes; the smallest free one that fits, else a new one."""
        stride = -(-row_bytes // ALIGNMENT) * ALIGNMENT
        fitting = [index for index in self._free if self._sizes[index] >= rows * stride]
        if fitting:
            index = min(fitting, key=self._sizes.__getitem__)
            self._free.remove(index)
        else:
            block, address = aligned(rows * stride)
            index = len(self._blocks)
            self._blocks.append(block)
            self._addresses.append(address)
            self._sizes.append(rows * stride)
        return Value(self._addresses[index], stride, n, index)

    def give_back(self, buffer: int) -> None:
        self._free.add(buffer)

    @property
    def nbytes(self) -> int:
        return sum(self._sizes)

    def block(self, value: Value) -> npt.NDArray[np.uint8]:
        """The bytes of a value's buffer, from its aligned start."""
        block = self._blocks[value.buffer]
        start = self._addresses[value.buffer] - block.ctypes.data
        return block[start : start + self._sizes[value.buffer]]
