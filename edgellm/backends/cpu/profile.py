"""Where the time of a step goes: a real walk over its plan, with a time stamp of every thread before and after each record."""
from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import KindTime, StepTimes
from edgellm.backends.cpu import abi
from edgellm.backends.cpu.laps import FIRST_SLOT, LAP, LAST, RECORDS, WAITING, WAKING
from edgellm.backends.cpu.plan import Record
from edgellm.backends.cpu.pool import Pool, Program

KERNEL = "lap:lap"                               # what is linked for it
CALIBRATION = 0.02                               # seconds in which the clock's ticks are counted at least
_Lap = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Clock:
    """The clock that stamps read, and how long its ticks are."""

    def __init__(self, address: int) -> None:
        self._lap, self._log = _Lap(address), np.zeros(FIRST_SLOT + 1, np.int64)
        self._record = LAP.record(log=self._log.ctypes.data, slot=0)
        self._began = (self.ticks(), time.perf_counter())

    def ticks(self) -> int:
        self._lap(self._record.ctypes.data, 0, 1)
        return int(self._log[LAST])

    def tick_seconds(self) -> float:
        """Seconds of a tick; waits where too few have passed to tell."""
        ticks, began = self._began
        time.sleep(max(0.0, began + CALIBRATION - time.perf_counter()))
        return (time.perf_counter() - began) / (self.ticks() - ticks)


class TimedProgram(Program):
    """A program with a stamp after every record, and after every barrier but the last, at which the walk ends."""

    def __init__(self, program: Program, address: int) -> None:
        """`address`: of the kernel that stamps."""
        self.program = program
        threads, n = program.table.shape[:2]
        places = np.arange(n) * 2 + 1 + np.cumsum([0, *program.table[0, :-1, abi.BARRIER_AFTER]])
        table = np.zeros((threads, int(places[-1]) + 2, abi.RECORD_WORDS), np.int64)
        self.log = np.zeros((threads, -(-(FIRST_SLOT + RECORDS + n) // abi.LINE) * abi.LINE), np.int64)
        table[:, :, LAP.at("log") // 8] = (self.log.ctypes.data + np.arange(threads) * self.log.strides[0])[:, None]
        table[:, :, abi.KERNEL], table[:, :, LAP.at("slot") // 8], table[:, 0, LAP.at("slot") // 8] = address, WAITING, WAKING
        table[:, places], table[:, places + 1, LAP.at("slot") // 8] = program.table, RECORDS + np.arange(n)
        table[:, places, abi.BARRIER_AFTER], table[:, places + 1, abi.BARRIER_AFTER] = 0, program.table[:, :, abi.BARRIER_AFTER]
        super().__init__(table)

    def run(self, pool: Pool, clock: Clock) -> tuple[float, npt.NDArray[np.float64]]:
        """Walk it once: the seconds that it took, and those of each slot, the threads' mean."""
        self.log[:] = 0
        began, self.log[:, LAST] = time.perf_counter(), clock.ticks()
        pool.run(self)
        end, seconds = clock.ticks(), time.perf_counter() - began
        self.log[:, FIRST_SLOT + WAITING] += end - self.log[:, LAST]         # at the last barrier
        return seconds, self.log[:, FIRST_SLOT:].mean(axis=0) * clock.tick_seconds()


def profile(pool: Pool, program: TimedProgram, clock: Clock, records: Sequence[Record], visible: Sequence[int]) -> StepTimes:
    """Walk `program`, whose records these are, with `visible` keys per memory class; times by kind of kernel, longest first."""
    seconds, slots = program.run(pool, clock)
    found = {"(waiting at barriers)": KindTime("(waiting at barriers)", program.barriers, slots[WAITING], 0),
             "(waking threads)": KindTime("(waking threads)", 1, slots[WAKING], 0)}
    for record, took in zip(records, slots[RECORDS:], strict=False):
        keys = visible[record.memory_class] if record.memory_class is not None else 0
        kind = found.get(record.kernel, KindTime(record.kernel, 0, 0.0, 0))
        found[record.kernel] = KindTime(record.kernel, kind.calls + 1, kind.seconds + took,
                                        kind.nbytes + record.weight_bytes + record.key_bytes * keys)
    return StepTimes(seconds, tuple(sorted(found.values(), key=lambda kind: -kind.seconds)))
