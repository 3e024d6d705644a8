"""Limits of time on machines that others use too: in seconds of a processor at 3.5 GHz that does nothing else."""

from __future__ import annotations

import time

LOOPS, SECONDS = 40_000, 0.002  # of Python, and what they take there


def slowness() -> float:
    """How many times longer Python takes here and now, at least 1."""
    start, n = time.thread_time(), 0
    for i in range(LOOPS):
        n += i
    return max(1.0, (time.thread_time() - start) / SECONDS)


class Clock:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._slowness, self._start = slowness(), time.thread_time()

    def seconds(self) -> float:
        taken = time.thread_time() - self._start
        return taken / max(self._slowness, slowness())
