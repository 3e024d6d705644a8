"""The state of one conversation on the CPU between steps: KV cache and recurrent states."""

from __future__ import annotations

from typing import BinaryIO

from edgellm.backends.cpu.kv_cache import KVCache, KVLayout
from edgellm.backends.cpu.recurrent import RecurrentLayout, RecurrentStates
from edgellm.memory.layout import MemoryLayout


class CpuState:
    """See backends.base.State."""

    def __init__(self, kv: KVCache, recurrent: RecurrentStates) -> None:
        self.kv, self.recurrent = kv, recurrent

    @classmethod
    def empty(cls, layout: MemoryLayout, kv: KVLayout, recurrent: RecurrentLayout) -> CpuState:
        """That of a new conversation."""
        return cls(KVCache(layout, kv), RecurrentStates(recurrent))

    @property
    def nbytes(self) -> int:
        return self.kv.nbytes + self.recurrent.nbytes

    def fork(self) -> CpuState:
        return CpuState(self.kv.fork(), self.recurrent.fork())

    def save(self, file: BinaryIO) -> None:
        self.kv.save(file)
        self.recurrent.save(file)

    @classmethod
    def load(cls, layout: MemoryLayout, kv: KVLayout, recurrent: RecurrentLayout, file: BinaryIO) -> CpuState:
        """Read what `save` wrote for the same layouts. Raises ValueError for anything else."""
        return cls(KVCache.load(layout, kv, file), RecurrentStates.load(recurrent, file))
