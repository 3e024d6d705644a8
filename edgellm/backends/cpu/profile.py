"""Where the time of a step goes: a real walk over its plan, with a time stamp of every thread before and after each record."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from edgellm.backends.base import KindTime, StepTimes
from edgellm.backends.cpu import abi
from edgellm.backends.cpu.pool import Pool, Program
from edgellm.backends.cpu.record import Record, Signature

LAP: Final = Signature("log slot")  # of a stamp: the thread's log, and the slot that gets the time since the last
# A log: int64 words, the clock at the last stamp, then ticks of each slot.
LAST: Final = 0
FIRST_SLOT: Final = 1
# Slots: until the thread has the plan, at barriers, and from there on in each record.
WAKING, WAITING, RECORDS = 0, 1, 2
KERNEL = "lap:lap"  # what is linked for it
WAITS, WAKES = "(waiting at barriers)", "(waking threads)"  # kinds that are not of a kernel
CALIBRATION = 0.02  # seconds in which the clock's ticks are counted at least
TRIES = 9  # to read two clocks at once
_Lap = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class Timed:
    """A walk: its seconds, and the threads' means of those until they had the plan, at barriers, and in each record."""

    seconds: float
    waking: float
    waiting: float
    barriers: int
    records: tuple[tuple[Record, float], ...]


class Clock:
    """The clock that stamps read, and how long its ticks are."""

    def __init__(self, address: int) -> None:
        self._lap, self._log = _Lap(address), np.zeros(FIRST_SLOT + 1, np.int64)
        self._record = LAP.record(log=self._log.ctypes.data, slot=0)
        self._began = self._both()

    def ticks(self) -> int:
        self._lap(self._record.ctypes.data, 0, 1)
        return int(self._log[LAST])

    def tick_seconds(self) -> float:
        """Seconds of a tick; waits where too few ticks have passed."""
        ticks, began = self._began
        time.sleep(max(0.0, began + CALIBRATION - time.perf_counter()))
        now, seconds = self._both()
        return (seconds - began) / (now - ticks)

    def _both(self) -> tuple[int, float]:
        """Ticks and seconds at one time: of some tries the one in which the system came least between the two."""
        tries = [(time.perf_counter(), self.ticks(), time.perf_counter()) for _ in range(TRIES)]
        before, ticks, after = min(tries, key=lambda each: each[2] - each[0])
        return ticks, (before + after) / 2


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
        for word in (abi.BARRIER_AFTER, abi.AHEAD, abi.AHEAD_BYTES):
            table[:, places, word], table[:, places + 1, word] = 0, program.table[:, :, word]
        super().__init__(table)

    def run(self, pool: Pool, clock: Clock, records: Sequence[Record]) -> Timed:
        """Walk it once. `records`: its program's."""
        self.log[:] = 0
        began, self.log[:, LAST] = time.perf_counter(), clock.ticks()
        pool.run(self)
        end, seconds = clock.ticks(), time.perf_counter() - began
        self.log[:, FIRST_SLOT + WAITING] += end - self.log[:, LAST]  # at the last barrier
        slots = self.log[:, FIRST_SLOT:].mean(axis=0) * clock.tick_seconds()
        times = tuple(zip(records, slots[RECORDS:], strict=False))  # a log ends with its cache line
        return Timed(seconds, slots[WAKING], slots[WAITING], self.program.barriers, times)


def by_kind(timed: Timed, visible: Sequence[int]) -> StepTimes:
    """Times by kind of kernel, longest first. `visible`: how many keys per memory class the step saw."""
    found = {WAITS: KindTime(WAITS, timed.barriers, timed.waiting, 0), WAKES: KindTime(WAKES, 1, timed.waking, 0)}
    for record, took in timed.records:
        keys = visible[record.memory_class] if record.memory_class is not None else 0
        kind = found.get(record.kernel, KindTime(record.kernel, 0, 0.0, 0))
        found[record.kernel] = KindTime(
            record.kernel, kind.calls + 1, kind.seconds + took, kind.nbytes + record.weight_bytes + record.key_bytes * keys
        )
    return StepTimes(timed.seconds, tuple(sorted(found.values(), key=lambda kind: -kind.seconds)))
