"""The bookkeeping of one conversation: its token ids, where the next ones go, and how far it can be cut back."""
from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.memory.layout import MemoryLayout
from edgellm.memory.ring import Ring, Spans


@dataclass(frozen=True, slots=True)
class Placement:
    """Where T tokens stand: the parts of a step that follow from the sequence's length alone."""

    positions: npt.NDArray[np.int64]             # (T,) true positions
    sink_positions: npt.NDArray[np.int64]        # (T,) where the query stands for the sinks' keys
    spans: tuple[Spans, ...]                     # per memory class: (T, 4)


class Sequence:
    """Token ids whose keys are stored, in order. `ids` grows by 4 bytes a token; nothing else grows."""

    def __init__(self, layout: MemoryLayout) -> None:
        self.layout = layout
        self.ids = array("i")
        self._rings = tuple(Ring(memory) for memory in layout.classes)
        spans = tuple(np.zeros((1, 4), np.int32) for _ in layout.classes)
        self._one = Placement(np.zeros(1, np.int64), np.zeros(1, np.int64), spans)

    @classmethod
    def restored(cls, layout: MemoryLayout, ids: array[int], oldest: Iterable[int]) -> Sequence:
        """One that holds `ids`, of which each class's ring has what came since `oldest`: see the property."""
        sequence = cls(layout)
        sequence.ids = ids[:]
        for ring, position in zip(sequence._rings, oldest, strict=True):
            ring.oldest = position
        return sequence

    @property
    def oldest(self) -> tuple[int, ...]:
        """By memory class: the oldest position after the sinks that is still there."""
        return tuple(ring.oldest for ring in self._rings)

    def fork(self) -> Sequence:
        """A second sequence with the same tokens, in the same slots of another state."""
        return Sequence.restored(self.layout, self.ids, self.oldest)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def evicted(self) -> int:
        """Tokens that full layers no longer see."""
        return max(0, len(self.ids) - self.layout.context)

    def place(self, n: int) -> Placement:
        """Reserve the slots of the next `n` tokens (1..chunk). For n = 1 the arrays are reused by the next call.

        The sequence is as long as before until `extend`: a step that fails in between leaves it usable.
        """
        start, limit = len(self.ids), self.layout.context - 1
        for ring in self._rings:
            ring.reserve(start + n)
        if n == 1:
            one = self._one
            one.positions[0] = start
            one.sink_positions[0] = min(start, limit)
            for ring, out in zip(self._rings, one.spans, strict=True):
                ring.place_one(start, out)
            return one
        positions = np.arange(start, start + n, dtype=np.int64)
        return Placement(positions, np.minimum(positions, limit), tuple(ring.place(start, n) for ring in self._rings))

    def extend(self, tokens: npt.NDArray[np.int32]) -> None:
        """Append tokens (n,) whose keys have been written to the slots that `place` gave."""
        self.ids.frombytes(tokens.tobytes())

    def common_prefix(self, tokens: npt.NDArray[np.int32]) -> int:
        """How many tokens at the start of `tokens` (n,) are the same as ours."""
        n = min(len(self.ids), len(tokens))
        # A slice is a copy: a view of `ids` kept alive by a traceback would forbid growing it.
        different = np.flatnonzero(np.frombuffer(self.ids[:n], np.int32) != tokens[:n]) if n else np.empty(0)
        return int(different[0]) if len(different) else n

    def can_truncate(self, length: int) -> bool:
        """Whether the conversation can go on from its first `length` tokens as if the rest had never been."""
        return 0 <= length <= len(self.ids) and all(ring.can_truncate(length) for ring in self._rings)

    def truncate(self, length: int) -> None:
        """Cut back to the first `length` tokens; only where `can_truncate(length)`."""
        assert self.can_truncate(length), f"cannot cut {len(self.ids)} tokens back to {length}"
        del self.ids[length:]                    # first: interrupted here, the rings only promise too little
        for ring in self._rings:
            ring.truncate(length)
