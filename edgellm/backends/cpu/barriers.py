"""Barriers between the records of a plan: before a record with a read-after-write, write-after-read or write-after-write hazard.

A record says of each buffer that it touches how threads partition it. Between two records with equal partitions there is no
hazard: a thread continues from one to the other without a barrier. An unknown partition (None) is equal to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgellm.backends.cpu.buffers import Value

Partition = tuple[object, ...] | None
REPLICATED = 0  # instead of a number of pieces: every thread does all of it, for itself


@dataclass(frozen=True, slots=True)
class Use:
    """A record's use of one buffer."""

    buffer: object
    partition: Partition
    writes: bool


class Barriers:
    """The barriers of one table of records, found while it grows."""

    def __init__(self) -> None:
        self._uses: dict[object, set[Use]] = {}  # since the last barrier, by buffer
        self.before: list[bool] = []  # per record: whether a barrier stands before it

    def add(self, uses: Sequence[Use]) -> bool:
        """Append a record; whether a barrier stands before it."""
        waits = any(self._conflict(use) for use in uses)
        if waits:
            self._uses.clear()
        for use in uses:
            self._uses.setdefault(use.buffer, set()).add(use)
        self.before.append(waits)
        return waits

    def _conflict(self, use: Use) -> bool:
        return any(
            (use.writes or other.writes) and (use.partition is None or use.partition != other.partition)
            for other in self._uses.get(use.buffer, ())
        )

    def produced_locally(self, use: Use) -> bool:
        """True if the buffer was written since the last barrier, and `use` could follow without another one."""
        return any(other.writes for other in self._uses.get(use.buffer, ())) and not self._conflict(use)


def partition_of_rows(value: Value) -> Partition:
    """Several rows, of which each thread takes some that follow each other: as `kernels/partition.py` divides them."""
    return "rows", value.stride


def partition_of_columns(value: Value, way: str) -> Partition:
    """Several rows, of which each thread takes some columns. `way`: of dividing them, the same for all kernels of that name."""
    return "columns", value.address, value.n, way


def partition_of_kept(pieces: int | None, threads: int) -> Partition:
    """State kept between steps, of a single row, in `pieces` equal pieces (see `partition_of_one`)."""
    return ("kept", threads) if pieces and pieces % threads == 0 else None


def partition_of_one(value: Value, pieces: int | None, threads: int) -> Partition:
    """A single row in `pieces` equal pieces, of which thread i takes those from pieces * i // threads on."""
    if value.replicated:
        return "own", value.stride
    if not pieces:
        return None
    even = pieces % threads == 0  # then the partition is the same as that of any other number of pieces that is even
    return "decode", value.address, value.n, threads if even else pieces
