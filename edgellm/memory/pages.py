"""Pages of slots that conversations may share: which page holds which slots, and copies made before a shared one is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from edgellm.memory.layout import RING_MULTIPLE, MemoryClass

P = TypeVar("P")

PAGE_SLOTS = RING_MULTIPLE  # of a ring; sinks have a page of their own
SINK_MULTIPLE = 32  # slots; back ends read keys in blocks of so many

# Counts change under it, also where a forgotten table is collected while its thread is in here: then a count stays too high, which
# costs a copy, and never too low.
_COUNTING = threading.RLock()


def sink_slots(memory: MemoryClass) -> int:
    """Slots of the sinks' page; 0 where there are no sinks."""
    return -(-memory.sinks // SINK_MULTIPLE) * SINK_MULTIPLE


def n_pages(memory: MemoryClass) -> int:
    """Pages of one memory class, the sinks' included."""
    return 1 + memory.ring // PAGE_SLOTS


class _Held(Generic[P]):
    """A page and how many tables hold it."""

    __slots__ = ("holders", "page")

    def __init__(self, page: P) -> None:
        self.page, self.holders = page, 1


class PageTable(Generic[P]):
    """The pages of one conversation in one memory class, or of its recurrent states. What a page is, is the back end's business."""

    def __init__(self, n: int) -> None:
        self._held: list[_Held[P] | None] = [None] * n

    def __iter__(self) -> Iterator[P | None]:
        """The pages in order; None where nothing was written yet."""
        return (None if held is None else held.page for held in self._held)

    def at(self, index: int) -> P | None:
        """The page at `index`, None where nothing was written yet."""
        held = self._held[index]
        return None if held is None else held.page

    def is_own(self, index: int) -> bool:
        """True if a page is there and nobody else holds it."""
        held = self._held[index]
        return held is not None and held.holders == 1

    def own(self, index: int, make: Callable[[], P], copy: Callable[[P], P]) -> P:
        """The page at `index`, after this safe to write: a new one where there was none, a copy where others hold it too."""
        held = self._held[index]
        if held is None:
            held = self._held[index] = _Held(make())
        elif held.holders > 1:
            fresh = _Held(copy(held.page))
            with _COUNTING:
                held.holders -= 1
            held = self._held[index] = fresh
        return held.page

    def fork(self) -> PageTable[P]:
        """A table of the same pages, all of which are shared from now on."""
        other: PageTable[P] = PageTable(len(self._held))
        with _COUNTING:
            for held in self._held:
                if held is not None:
                    held.holders += 1
            other._held = list(self._held)
        return other

    def release(self) -> list[P]:
        """Let go of all pages; those that nobody else holds."""
        with _COUNTING:
            held_here, self._held = [held for held in self._held if held is not None], [None] * len(self._held)
            for held in held_here:
                held.holders -= 1
            return [held.page for held in held_here if not held.holders]
