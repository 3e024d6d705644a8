"""Memory of one plan: row buffers that values share when their lives do not overlap, all aligned to cache lines."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
TABLES = ("one", "many", "ragged")               # of records: see plan.py


def aligned(nbytes: int) -> tuple[npt.NDArray[np.uint8], int]:
    """Zeroed memory and the aligned address in it; pages are touched by their first user, not here."""
    block = np.zeros(nbytes + ALIGNMENT, np.uint8)
    return block, -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Own:
    """An address that differs from thread to thread in a step of one token: thread i's lies i * `step` bytes further.

    `always`: in a step of several tokens, too.
    """

    address: int
    step: int
    always: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """The address of a kernel that the record's own kernel calls."""

    name: str


Argument = int | Own | Kernel                    # of a record


@dataclass(frozen=True, slots=True)
class Value:
    """Where the rows of a graph value lie: first row's address, bytes between rows, columns, and the buffer they belong to.

    `own`: in a step of one token each thread computes the value for itself, thread i in the place of row i.
    """

    address: int
    stride: int
    n: int
    buffer: int
    own: bool = False

    @property
    def at(self) -> int | Own:
        """The address, as an argument of a record."""
        return Own(self.address, self.stride) if self.own else self.address


class Arena:
    """Hands out buffers by size and takes them back; a buffer handed out again is as good as a new one.

    A buffer that was given back rests until threads have met in every table of records: its next use would make them meet.
    """

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[np.uint8]] = []
        self._addresses: list[int] = []
        self._sizes: list[int] = []
        self._free: set[int] = set()
        self._resting: dict[int, set[str]] = {}              # the tables in which threads have to meet yet

    def take(self, rows: int, row_bytes: int, n: int, *, own: bool = False) -> Value:
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
        return Value(self._addresses[index], stride, n, index, own)

    def give_back(self, buffer: int) -> None:
        self._resting[buffer] = set(TABLES)

    def threads_met(self, table: str) -> None:
        """A barrier has been set in a table."""
        for buffer, tables in list(self._resting.items()):
            tables.discard(table)
            if not tables:
                self._free.add(buffer)
                del self._resting[buffer]

    @property
    def nbytes(self) -> int:
        return sum(self._sizes)

    def block(self, value: Value) -> npt.NDArray[np.uint8]:
        """The bytes of a value's buffer, from its aligned start."""
        block = self._blocks[value.buffer]
        start = self._addresses[value.buffer] - block.ctypes.data
        return block[start : start + self._sizes[value.buffer]]
