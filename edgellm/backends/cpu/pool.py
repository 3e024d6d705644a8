"""The threads of one model: they walk a plan together, spin between steps for a moment, then park."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import abi
from edgellm.errors import BackendError

_PAUSES, _TRIED = abi.STOP * abi.LINE + 1, 4000  # the word; pauses that are timed
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Program:
    """A table of records (threads, n, 32) that threads walk, each its own row of it."""

    def __init__(self, table: npt.NDArray[np.int64], keeps: object = None) -> None:
        """`keeps`: what its records have addresses of, where nothing else holds it."""
        assert table[0].flags.c_contiguous
        self.table, self.threads, self._keeps = table, len(table), keeps
        self._words = np.zeros(abi.PROGRAM_WORDS, np.int64)
        self._words[:] = table.ctypes.data, table.shape[1], table.strides[0], self.threads
        self.address = int(self._words.ctypes.data)

    @property
    def barriers(self) -> int:
        return int(self.table[0, :, abi.BARRIER_AFTER].sum())


class Pool:
    """`threads` workers, of which the calling thread is number 0. One `run` at a time: the owner serialises calls."""

    def __init__(self, threads: int, start: int, walk: int, wait: int, *, code: object) -> None:
        """start, walk, wait: addresses of the kernels of `executor.py` with these names, valid while `code` lives.

        `code` holds all that a plan needs but for `state`, so that an interrupted one can be walked to its end at any time.
        """
        self.threads, self._code = threads, code
        self.state: object = None  # the conversation of the plan that ran last
        self._program: Program | None = None  # and the plan
        self._start, self._walk, self._wait = _KERNEL(start), _KERNEL(walk), _KERNEL(wait)
        self._block = np.zeros(abi.LINE * (abi.WORDS + threads) + abi.LINE, np.int64)
        self._address = -(-self._block.ctypes.data // 64) * 64
        self._words = self._block[(self._address - self._block.ctypes.data) // 8 :]
        sleep = abi.SLEEPERS * abi.LINE + 1
        self._words[sleep : sleep + 2] = abi.LONGEST_SLEEP
        self._words[_PAUSES] = self._idle_pauses() if threads > 1 else 0
        self._condition = threading.Condition()
        self._parked = [False] * threads
        self._closed = False
        self._pid = os.getpid()
        self._workers: list[threading.Thread] = []
        try:
            for i in range(1, threads):
                self._workers.append(threading.Thread(target=self._work, args=(i,), name=f"edgellm-{i}", daemon=True))
                self._workers[-1].start()
        except BaseException:  # Ctrl-C, or no more threads: no other object has those that run
            self.close()
            raise

    def _idle_pauses(self) -> int:
        """Number of pauses in `IDLE_SECONDS`; the length of one differs between processors (26 ns on Zen 4)."""
        self._words[_PAUSES], seconds = _TRIED, []
        for _ in range(2):
            began = time.perf_counter()
            self._wait(self._address, 0, 0)  # there is nothing to walk yet
            seconds.append(time.perf_counter() - began)
        return int(_TRIED * abi.IDLE_SECONDS / min(seconds))

    def run(self, program: Program) -> None:
        """Walk a program; returns when all its threads are through."""
        if os.getpid() != self._pid:
            raise BackendError("this model was loaded before fork(); its threads did not come along: load it in the child process.")
        assert program.threads <= self.threads
        self._program = program  # the others read it, also when Ctrl-C takes this thread away
        self._start(self._address, program.address, 0)
        self._go()

    def settle(self) -> None:
        """Finish a plan that an exception (Ctrl-C) kept this thread from walking: the others wait for it at the first barrier.

        Call it before changing anything that a plan reads.
        """
        if self._words[abi.EPOCH * abi.LINE] != self._words[abi.WORDS * abi.LINE]:
            self._go()

    def _go(self) -> None:
        if self.threads > 1:
            with self._condition:
                if any(self._parked[1 : self._wanted()]):
                    self._condition.notify_all()
        self._walk(self._address, 0, 0)

    def _wanted(self) -> int:
        """Number of threads that walk the newest program; the others stay parked."""
        return int(self._words[abi.EPOCH * abi.LINE]) % abi.MOST_THREADS

    def _work(self, ith: int) -> None:
        words, seen = self._words, (abi.WORDS + ith) * abi.LINE
        while True:
            self._wait(self._address, ith, 0)
            with self._condition:
                while not self._closed and (words[abi.EPOCH * abi.LINE] == words[seen] or ith >= self._wanted()):
                    self._parked[ith] = True
                    self._condition.wait()
                    self._parked[ith] = False
                if self._closed:
                    return

    def close(self) -> None:
        """End the threads."""
        if os.getpid() == self._pid and not self._closed:
            self.settle()
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._words[abi.STOP * abi.LINE] = 1
            self._condition.notify_all()
        if os.getpid() == self._pid:
            for worker in self._workers:
                if worker.ident is not None and worker is not threading.current_thread():  # garbage is collected anywhere
                    worker.join()
