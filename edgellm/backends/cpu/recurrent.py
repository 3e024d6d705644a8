"""The recurrent states of one conversation on the CPU: a page for each slot, which holds those of all layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu.buffers import ALIGNMENT
from edgellm.backends.cpu.pages import Page, address_of, contents, new_page, page_bytes, read_number, read_page, write_number
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.pages import PageTable
from edgellm.memory.state_ring import StateSlots


@dataclass(frozen=True, slots=True)
class RecurrentLayout:
    """Where states lie in a page of `nbytes`. `zeros`: what a conversation starts from. `spare`: pages of conversations that are
    closed, at most as many as one has, for the next: memory that was written before is faster to get than new pages.
    """

    at: Mapping[int, int]  # by state
    nbytes: int
    slots: int
    zeros: Page
    spare: list[Page]

    @classmethod
    def plan(cls, layout: MemoryLayout) -> RecurrentLayout:
        at, end = dict[int, int](), 0
        for state, spec in layout.recurrent:
            at[state] = end
            end += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
        return cls(at, end, layout.state_slots, new_page(end), [])


class RecurrentStates:
    """A conversation's pages. Forks share them; a step writes only to pages that are not shared."""

    def __init__(self, layout: RecurrentLayout) -> None:
        self._layout = layout
        self._table: PageTable[Page] = PageTable(layout.slots)

    def fork(self) -> RecurrentStates:
        """The states of a second conversation that continues from here."""
        other = RecurrentStates(self._layout)
        other._table = self._table.fork()
        return other

    def write_to(self, slots: StateSlots, targets: npt.NDArray[np.int64]) -> None:
        """Make the slots of a step (T, 2) safe to write; targets (T, 2): addresses of the pages before and after a token."""
        written = {int(slot): self._own(int(slot)) for slot in (slots[:1, 1] if len(slots) == 1 else np.unique(slots[:, 1]))}
        source = self._table.at(int(slots[0, 0])) if slots[0, 0] >= 0 else None
        targets[:, 1] = [written[slot] for slot in slots[:, 1].tolist()]
        targets[1:, 0] = targets[:-1, 1]
        targets[0, 0] = address_of(self._layout.zeros if source is None else source)

    def _own(self, slot: int) -> int:
        """Address of a page whose contents do not matter."""
        return address_of(self._table.own(slot, self._new, lambda page: self._new()))

    def _new(self) -> Page:
        try:
            return self._layout.spare.pop()
        except IndexError:
            return new_page(self._layout.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of all pages, shared ones included."""
        return sum(page_bytes(page) for page in self._table if page is not None)

    def save(self, file: BinaryIO) -> None:
        """Write the number of pages, then each with its slot."""
        pages = [(slot, page) for slot, page in enumerate(self._table) if page is not None]
        write_number(file, len(pages))
        for slot, page in pages:
            write_number(file, slot)
            file.write(contents(page).data)

    @classmethod
    def load(cls, layout: RecurrentLayout, file: BinaryIO) -> RecurrentStates:
        """Read what `save` wrote for the same layout. Raises ValueError for anything else."""
        states = cls(layout)
        for _ in range(read_number(file, layout.slots)):
            slot = read_number(file, layout.slots - 1)
            if states._table.is_own(slot):
                raise ValueError(f"state {slot} cannot be there twice")
            read_page(file, states._table.own(slot, states._new, lambda page: page))
        return states

    def __del__(self) -> None:
        if hasattr(self, "_table"):
            spare = self._layout.spare
            spare += self._table.release()[: max(0, self._layout.slots - len(spare))]
