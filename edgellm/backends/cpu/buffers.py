"""Memory of one plan: row buffers in one block, which values share when their lives do not overlap, aligned to cache lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
SETS_APART = 1 << 11  # bytes
Mode = Literal["decode", "batch", "ragged"]  # which table of records: see plan.py
MODES: tuple[Mode, ...] = ("decode", "batch", "ragged")


def aligned(nbytes: int) -> tuple[npt.NDArray[np.uint8], int]:
    """Zeroed memory and the aligned address in it; pages are touched by their first user, not here."""
    block = np.zeros(nbytes + ALIGNMENT, np.uint8)
    return block, -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class PerThread:
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


Argument = int | PerThread | Kernel  # of a record


@dataclass(frozen=True, slots=True)
class Value:
    """Where the rows of a graph value lie: first row's address, bytes between rows, columns, and the buffer they belong to.

    `replicated`: in a step of one token each thread computes the value for itself, thread i in the place of row i.
    """

    address: int
    stride: int
    n: int
    buffer: int
    replicated: bool = False

    @property
    def at(self) -> int | PerThread:
        """The address, as an argument of a record."""
        return PerThread(self.address, self.stride) if self.replicated else self.address


class Arena:
    """Hands out buffers and takes them back; memory that is handed out again is as good as new.

    A buffer that was given back rests until a barrier has been set in every table of records: its next use would need one.
    """

    def __init__(self, reserve: int = 0) -> None:
        """`reserve`: bytes that buffers share; one that finds no room there gets memory of its own, which others share then."""
        self._blocks: list[tuple[npt.NDArray[np.uint8], int, int]] = []  # with their aligned start and end
        self._highest: list[int] = []  # end of what was handed out of each
        self._buffers: dict[int, tuple[int, int]] = {}  # handed out, by number: start and end
        self._free: list[tuple[int, int]] = []  # start and end, sorted; no two touch
        self._resting: dict[int, set[str]] = {}  # the tables that have had no barrier since
        self._count = 0
        if reserve:
            self._grow(reserve)

    def take(self, rows: int, row_bytes: int, n: int, *, replicated: bool = False) -> Value:
        """A buffer of `rows` rows of at least `row_bytes` bytes: the first place where it fits, else a new one."""
        stride = -(-row_bytes // ALIGNMENT) * ALIGNMENT
        if stride % SETS_APART == 0:  # rows a power of two apart would meet in a few sets of each cache
            stride += ALIGNMENT
        size, index = rows * stride, self._count
        if not any(end - start >= size for start, end in self._free):
            self._grow(size)
        place = next(i for i, (start, end) in enumerate(self._free) if end - start >= size)
        start, end = self._free[place]
        self._free[place : place + 1] = [(start + size, end)] if end - start > size else []
        self._buffers[index] = start, start + size
        block = self._block_of(start)
        self._highest[block] = max(self._highest[block], start + size)
        self._count += 1
        return Value(start, stride, n, index, replicated)

    def give_back(self, buffer: int) -> None:
        self._resting[buffer] = set(MODES)

    def barrier(self, table: str) -> None:
        """A barrier has been set in a table."""
        for buffer, tables in list(self._resting.items()):
            tables.discard(table)
            if not tables:
                self._join(*self._buffers.pop(buffer))
                del self._resting[buffer]

    @property
    def nbytes(self) -> int:
        """Bytes that were handed out at some time."""
        return sum(highest - start for highest, (_, start, _) in zip(self._highest, self._blocks, strict=True))

    def block(self, value: Value) -> npt.NDArray[np.uint8]:
        """The bytes of a value's buffer, from its aligned start."""
        start, end = self._buffers[value.buffer]
        memory = self._blocks[self._block_of(start)][0]
        return memory[start - memory.ctypes.data : end - memory.ctypes.data]

    @property
    def blocks(self) -> list[npt.NDArray[np.uint8]]:
        return [memory for memory, _, _ in self._blocks]

    def _grow(self, size: int) -> None:
        memory, start = aligned(size)
        self._blocks.append((memory, start, start + size))
        self._highest.append(start)
        self._join(start, start + size)

    def _block_of(self, address: int) -> int:
        return next(i for i, (_, start, end) in enumerate(self._blocks) if start <= address < end)

    def _join(self, start: int, end: int) -> None:
        """Add a range to the free ones, as one with those that it touches. Blocks never touch: each is longer than its range."""
        touching = [each for each in self._free if each[1] == start or each[0] == end]
        joined = min([start, *(each[0] for each in touching)]), max([end, *(each[1] for each in touching)])
        self._free = sorted([*(each for each in self._free if each not in touching), joined])
