"""The role of the thread that computes steps: one at a time has it, and hands it to one that waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from edgellm.engine.request import Request

WAIT = 0.25  # seconds; bounded waits let Ctrl-C through on every system


class DriverRole:
    """Guarded by the monitor's lock. `thread` has the role, 0 where none has; only it changes that to and from its number."""

    def __init__(self, lock: threading.RLock) -> None:
        self.thread = 0
        self.reserved = 0  # callers that want the executable for themselves, and come before all requests
        self.sleepers = 0  # threads that wait for output
        self._free = threading.Condition(lock)

    def sleep(self, wake: threading.Condition) -> None:
        """Wait for output, or for the role."""
        self.sleepers += 1
        try:
            wake.wait(WAIT)
        finally:
            self.sleepers -= 1

    def hand_over(self, running: Iterable[Request]) -> None:
        """Wake a thread that may have the role now."""
        if self.thread:
            return
        if self.reserved:
            self._free.notify()
            return
        for request in running:
            if request.awaited and request.wake is not None and not request.ready:
                request.wake.notify_all()
                return

    def reserve(self, closed: Callable[[], bool]) -> None:
        """Wait until no other thread has the role, or the model is closed."""
        thread = threading.get_ident()
        self.reserved += 1
        try:
            while self.thread not in (0, thread) and not closed():
                self._free.wait(WAIT)
        finally:
            self.reserved -= 1
