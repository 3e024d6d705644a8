"""The keys and values of one conversation on the CPU, in pages of slots, and the page tables that kernels read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu.pages import (
    Page,
    address_of,
    contents,
    copied,
    new_page,
    page_bytes,
    read_number,
    read_page,
    write_number,
)
from edgellm.memory.kv_types import kv_row_bytes
from edgellm.memory.layout import MemoryClass, MemoryLayout
from edgellm.memory.pages import PAGE_SLOTS, PageTable, n_pages, sink_slots
from edgellm.memory.sequence import Spans
from edgellm.memory.sizes import token_bytes


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Where layers lie in a page: for each layer of the class, for each slot of the page, keys [head][slot][row], then values.

    `keys`, `values`: bytes that lie before a layer's own, for one slot; times the page's slots that is where they begin, the same
    place where keys hold their values. The layers of a model that reads documents take turns in the same place.
    """

    slot_bytes: tuple[int, ...]  # per memory class: of all its layers
    keys: Mapping[int, int]  # by state
    values: Mapping[int, int]

    @classmethod
    def plan(cls, layout: MemoryLayout, kv_type: str) -> KVLayout:
        ends, keys, values = [0] * len(layout.classes), dict[int, int](), dict[int, int]()
        for state, layer, index in layout.kv:
            keys[state] = 0 if layout.documents else ends[index]
            own_keys = 0 if layer.v_is_k_prefix else layer.n_kv_heads * kv_row_bytes(kv_type, layer.dim_k)
            values[state] = keys[state] + own_keys
            ends[index] = max(ends[index], keys[state] + token_bytes(layer, kv_type))
        return cls(tuple(ends), keys, values)


class KVCache:
    """A conversation's pages. Each is taken from the system when its first slot is written, zeroed; forks share pages until one
    of them writes.
    """

    def __init__(self, layout: MemoryLayout, kv: KVLayout) -> None:
        self.layout, self.kv = layout, kv
        self._tables: list[PageTable[Page]] = [PageTable(n_pages(memory)) for memory in layout.classes]
        # Addresses of pages, 0 where there is none: what kernels read. Index 0 is the sinks' page.
        self._addresses = [np.zeros(len(list(table)), np.int64) for table in self._tables]
        self.tables = _starts(self._addresses)  # by memory class: address of int64 (pages,), the sinks' page first
        self._own_page = [-1] * len(layout.classes)  # the page that was written last, while no other conversation holds it

    def fork(self) -> KVCache:
        """A second conversation that continues from here: page tables are copied, pages are not."""
        other = KVCache(self.layout, self.kv)
        self._own_page = [-1] * len(self._own_page)
        other._tables = [table.fork() for table in self._tables]
        other._addresses = [addresses.copy() for addresses in self._addresses]
        other.tables = _starts(other._addresses)
        return other

    def write_to(self, memory_class: int, spans: Spans, targets: npt.NDArray[np.int64]) -> None:
        """Make the slots of `spans` (T, 4) safe to write, and say where they are.

        targets (T, 3): address of the page, slot in it, slots that it has.
        """
        memory = self.layout.classes[memory_class]
        if not self.kv.slot_bytes[memory_class]:
            return  # a class without layers, as the full one of models whose layers all slide
        if len(spans) == 1:  # the usual step: 2 us instead of 40
            slot = int(spans[0, 0])
            index = 0 if slot < memory.sinks else 1 + (slot - memory.sinks) // PAGE_SLOTS
            if index != self._own_page[memory_class]:
                self._own(memory_class, index)
                self._own_page[memory_class] = index
            targets[0, 0] = self._addresses[memory_class][index]
            targets[0, 1:] = ((slot - memory.sinks) % PAGE_SLOTS, PAGE_SLOTS) if index else (slot, sink_slots(memory))
            return
        slots, pages = spans[:, 0], _pages(memory, spans[:, 0])
        for index in sorted(set(pages.tolist())):  # np.unique would import numpy.ma
            self._own(memory_class, index)
        np.take(self._addresses[memory_class], pages, out=targets[:, 0])
        is_sink = pages == 0
        targets[:, 1] = np.where(is_sink, slots, (slots - memory.sinks) % PAGE_SLOTS)
        targets[:, 2] = np.where(is_sink, sink_slots(memory), PAGE_SLOTS)

    def _own(self, memory_class: int, index: int) -> None:
        table = self._tables[memory_class]
        if not table.is_own(index):
            size = self._page_bytes(memory_class, index)
            page = table.own(index, lambda: new_page(size), copied)
            self._addresses[memory_class][index] = address_of(page)

    @property
    def nbytes(self) -> int:
        """Bytes of all pages, shared ones included."""
        return sum(page_bytes(page) for table in self._tables for page in table if page is not None)

    @property
    def own_bytes(self) -> int:
        """Bytes of the pages that no other conversation shares."""
        return sum(
            page_bytes(page)
            for table in self._tables
            for index, page in enumerate(table)
            if page is not None and table.is_own(index)
        )

    def save(self, file: BinaryIO) -> None:
        """Write all pages: per memory class how many, then each with its number (int64, little-endian)."""
        for table in self._tables:
            pages = [(index, page) for index, page in enumerate(table) if page is not None]
            write_number(file, len(pages))
            for index, page in pages:
                write_number(file, index)
                file.write(contents(page).data)

    @classmethod
    def load(cls, layout: MemoryLayout, kv: KVLayout, file: BinaryIO) -> KVCache:
        """Read what `save` wrote for the same layout. Raises ValueError for anything else."""
        cache = cls(layout, kv)
        for memory_class, memory in enumerate(layout.classes):
            for _ in range(read_number(file, n_pages(memory))):
                index = read_number(file, n_pages(memory) - 1)
                size = cache._page_bytes(memory_class, index)
                if cache._tables[memory_class].is_own(index) or not size:
                    raise ValueError(f"page {index} of memory class {memory_class} cannot be there")
                cache._own(memory_class, index)
                read_page(file, cast(Page, cache._tables[memory_class].at(index)))
        return cache

    def _page_bytes(self, memory_class: int, index: int) -> int:
        n = PAGE_SLOTS if index else sink_slots(self.layout.classes[memory_class])
        return n * self.kv.slot_bytes[memory_class]

    def __del__(self) -> None:
        for table in getattr(self, "_tables", ()):
            table.release()


def _starts(arrays: Sequence[npt.NDArray[np.int64]]) -> list[int]:
    return [int(array.ctypes.data) for array in arrays]


def _pages(memory: MemoryClass, slots: npt.NDArray[np.int32]) -> npt.NDArray[Any]:  # Any: of whatever width slots have
    """The pages of slots: 0 for the sinks, then the ring's in order."""
    return np.where(slots < memory.sinks, 0, 1 + (slots - memory.sinks) // PAGE_SLOTS)
