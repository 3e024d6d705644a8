"""A program in parts of bounded work, between which Ctrl-C and a caller's `stop` are noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.ops.attention import ATTENTION
from edgellm.backends.cpu.pool import Program
from edgellm.backends.cpu.record import Record
from edgellm.backends.cpu.step_block import AttentionWork

Work = npt.NDArray[np.integer]
LIST = ATTENTION.at("work") // 8  # word of an attention record


def parts(program: Program, work: Work, size: int, slicer: Slicer | None = None) -> Iterator[tuple[Program, int]]:
    """Programs of about `size` work with the work that each does, cut where all threads meet, or by `slicer` where the records
    between two barriers do more. `work` (n,): that of each record.
    """
    begin, before, done = 0, 0, np.concatenate([[0], np.cumsum(work)]).tolist()
    ends = (np.flatnonzero(program.table[0, :, abi.BARRIER_AFTER]) + 1).tolist()
    for end in ends:
        count = -(-(done[end] - done[before]) // size)
        if slicer is not None and count > 1 and slicer.cuts(before, end):
            if before > begin:
                yield Program(program.table[:, begin:before]), done[before] - done[begin]
            for piece in slicer.slices(program, before, end, count):
                yield piece, (done[end] - done[before]) // count
            begin = end
        elif done[end] - done[begin] >= size or end == ends[-1]:
            yield Program(program.table[:, begin:end]), done[end] - done[begin]
            begin = end
        before = end


class Slicer:
    """Cuts the records between two barriers: each thread's share of a kernel's work into shares of shares, or attention's list."""

    def __init__(self, records: Sequence[Record], attention: Mapping[int, AttentionWork], kernel: int) -> None:
        """`records`: those of the program. `attention`: its lists by address. `kernel`: address of "executor:slice"."""
        self._records, self._attention, self._kernel = records, attention, kernel

    def cuts(self, first: int, end: int) -> bool:
        """True if these records can be cut."""
        return end - first == 1 or not any(record.by_thread for record in self._records[first:end])

    def slices(self, program: Program, first: int, end: int, count: int) -> Iterator[Program]:
        if self._records[first].by_thread:
            for words in self._attention[int(program.table[0, first, LIST])].cut(count):
                table = program.table[:, first:end].copy()
                table[:, 0, LIST] = words.ctypes.data
                yield Program(table, keeps=words)
            return
        a = abi.FIRST_ARGUMENT
        for at in range(count):
            table = program.table[:, first:end].copy()
            table[:, :, a] = table[:, :, abi.KERNEL]
            for ith, rows in enumerate(program.table[:, first:end]):
                table[ith, :, a + 1] = rows.ctypes.data + np.arange(end - first) * rows.strides[0]
            table[:, :, a + 2], table[:, :, a + 3] = at, count
            table[:, :, abi.KERNEL], table[:, :, abi.CHUNKS] = self._kernel, 0
            yield Program(table)
