"""Memory bandwidth of this machine, the roof of decoding, measured with a model's threads."""

from __future__ import annotations

import time

import numpy as np

from edgellm.backends.cpu import abi, jit, system
from edgellm.backends.cpu.executable import EXECUTOR
from edgellm.backends.cpu.pool import Pool, Program
from edgellm.backends.cpu.record import Signature

READ = Signature("data nbytes seen")  # `seen` receives a value that depends on every byte
DEFAULT_BYTES = 256 << 20  # far past any cache, yet small enough for a Raspberry Pi


class CpuReadProbe:
    """A buffer and threads to read it with; `measure` may be called again and again."""

    def __init__(self, threads: int | None = None, nbytes: int = DEFAULT_BYTES) -> None:
        self.threads = system.usable_cores() if threads is None else threads
        self._linker = jit.Linker()
        addresses = jit.kernel_addresses([*EXECUTOR, "probe:read"], jit.choose_isa(), self._linker)
        self._data = np.ones(nbytes // 8, np.int64)  # written, so that every page is there
        self._step = np.zeros(abi.STEP_WORDS, np.int64)
        record = READ.record(step=self._step.ctypes.data, data=self._data.ctypes.data, nbytes=self._data.nbytes)
        records = np.tile(record, (self.threads, 1, 1))
        records[:, 0, abi.KERNEL] = addresses["probe:read"]
        records[:, 0, abi.BARRIER_AFTER] = 1
        self._program = Program(records)
        self._pool = Pool(self.threads, *(addresses[name] for name in EXECUTOR), code=self._linker)

    def measure(self, repetitions: int = 3) -> float:
        """Bytes per second, the best of some passes: a neighbour can only slow a read down."""
        best = 0.0
        for _ in range(repetitions):
            start = time.perf_counter()
            self._pool.run(self._program)
            best = max(best, self._data.nbytes / (time.perf_counter() - start))
        return best

    def close(self) -> None:
        self._pool.close()
