"""The slots of one memory class: where a token's key goes, and what the token sees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.memory.layout import MemoryClass

Spans = npt.NDArray[np.int32]  # (T, 4): slot, visible sinks, first window slot, window length


class Ring:
    """One memory class in use: position p lives in slot p where it is kept, else in `sinks + (p - kept) % ring`.

    A token at position p sees those kept, 0..min(kept, p + 1) - 1, and the positions max(kept, p - window + 1)..p; of a chunked
    class, which keeps none, those from p - p % window on.
    Resident ring positions are always one run that ends at the newest token; `oldest` is where it starts.
    """

    __slots__ = ("chunked", "kept", "oldest", "ring", "sinks", "window")

    def __init__(self, memory: MemoryClass, kept: int | None = None) -> None:
        """`kept`: how many of the first tokens stay, None for as many as the class has it."""
        self.sinks, self.ring, self.chunked = memory.sinks, memory.ring, memory.chunked
        self.kept = memory.kept if kept is None else kept
        self.window = memory.window + memory.kept - self.kept
        self.oldest = self.kept

    def keep(self, kept: int) -> None:
        """Let another number of first tokens stay; only while no more are there."""
        if self.sinks:
            self.window, self.kept, self.oldest = self.window + self.kept - kept, kept, kept

    def slot(self, position: int) -> int:
        """The slot that holds `position`."""
        return position if position < self.kept else self.sinks + (position - self.kept) % self.ring

    def _first(self, position: int) -> int:
        """The oldest ring position that a token there sees."""
        return position - position % self.window if self.chunked else max(self.kept, position - self.window + 1)

    def place(self, start: int, n: int) -> Spans:
        """Spans (n, 4) int32 of the tokens at positions start..start + n - 1, n at most the layout's chunk."""
        sinks, kept, window, ring = self.sinks, self.kept, self.window, self.ring
        position = np.arange(start, start + n, dtype=np.int64)
        first = position - position % window if self.chunked else np.maximum(position - (window - 1), kept)
        spans = np.empty((n, 4), np.int32)
        spans[:, 0] = np.where(position < kept, position, sinks + (position - kept) % ring)
        spans[:, 1] = np.minimum(position + 1, kept)
        spans[:, 2] = sinks + (first - kept) % ring
        spans[:, 3] = np.maximum(position - first + 1, 0)
        return spans

    def place_one(self, position: int, out: Spans) -> None:
        """What `place(position, 1)` returns, written into `out` (1, 4): the decode step, 0.7 us instead of 20."""
        sinks, kept, ring, window = self.sinks, self.kept, self.ring, self.window
        if position < kept:
            out[0] = (position, position + 1, sinks, 0)
            return
        first = position - position % window if self.chunked else max(kept, position - window + 1)
        out[0] = (sinks + (position - kept) % ring, kept, sinks + (first - kept) % ring, position - first + 1)

    def reserve(self, end: int) -> None:
        """Note that positions below `end` are about to be written: what they overwrite is no longer resident."""
        self.oldest = max(self.oldest, end - self.ring)

    def can_truncate(self, length: int) -> bool:
        """Whether everything that the next token at position `length` sees is still resident."""
        first = self._first(length)
        return first >= length or first >= self.oldest

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on; only where `can_truncate(length)`."""
        self.oldest = min(self.oldest, max(self.kept, length))
