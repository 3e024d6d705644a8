"""Attention's work in a step, listed before threads walk the plan: groups of rows of one conversation by chunks of its keys.

A group's chunks are added up in order, by the thread that has the group. Threads share the key/value heads evenly where these are a
multiple of them. Otherwise, of conversations that continue by one token, those that see several chunks are shared out chunk by
chunk, each of which leaves a partial, and `merge` adds these up in the same order: so a long conversation keeps all threads busy,
and its bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import StepBatch
from edgellm.backends.cpu import abi
from edgellm.backends.cpu.state import CpuState
from edgellm.graph import Rows
from edgellm.memory.layout import MemoryClass
from edgellm.memory.ring import Spans

BLOCK, CHUNK = abi.ATTENTION_BLOCK, abi.ATTENTION_CHUNK
WHOLE_GROUP = -1  # instead of a partial's number
ByChunks = tuple[bool, bool]  # whether threads share chunks, in steps of one token and of several


class AttentionWork:
    """The lists for layers of one memory class whose groups have `group` rows at most, of all tokens' rows or the wanted ones.

    `words`: int64, n_items and n_merges, then `items` (n, 6): first row, rows, page table, first chunk, end chunk, number of the
    partial that the chunk leaves or WHOLE_GROUP; and `merges` (n, 3): row, first partial, end partial. Chunks count CHUNK slots of
    the ring from its start, without wrapping; the sinks are the chunk before a group's first.
    """

    def __init__(self, memory: MemoryClass, group: int, max_rows: int, max_segments: int, by_chunks: ByChunks) -> None:
        self.memory, self.group, self.by_chunks = memory, group, by_chunks
        self.max_partials = memory.ring // CHUNK + 4 * max_segments if any(by_chunks) else 0
        n_items = -(-max_rows // group) + max_segments + self.max_partials
        n_merges = max_segments + 1
        self._words = np.zeros(abi.WORK_ITEMS + 6 * n_items + 3 * n_merges, np.int64)
        self._words[abi.WORK_MERGES_AT] = abi.WORK_ITEMS + 6 * n_items
        self._items = self._words[abi.WORK_ITEMS : abi.WORK_ITEMS + 6 * n_items].reshape(n_items, 6)
        self._merges = self._words[abi.WORK_ITEMS + 6 * n_items :].reshape(n_merges, 3)
        self._last: tuple[int, int, int] | None = None  # of a step of one token: what is listed already

    @property
    def address(self) -> int:
        return int(self._words.ctypes.data)

    @property
    def has_merges(self) -> bool:
        """True if some of the listed work leaves partials to merge."""
        return bool(self._words[abi.WORK_N_MERGES])

    def cut(self, count: int) -> Iterator[npt.NDArray[np.int64]]:
        """The listed groups in `count` lists, none of which has partials to merge."""
        for items in np.array_split(self._items[: self._words[abi.WORK_N_ITEMS]], count):
            words = np.zeros(abi.WORK_ITEMS + items.size, np.int64)
            words[abi.WORK_N_ITEMS], words[abi.WORK_MERGES_AT] = len(items), abi.WORK_ITEMS
            words[abi.WORK_ITEMS :] = items.ravel()
            yield words

    def fill(self, batch: StepBatch, memory_class: int, rows: Rows) -> None:
        """List the work of a step."""
        spans, ends = batch.spans[memory_class], None
        if rows == "R" and len(batch.output_rows) < len(batch.tokens):
            spans = spans[batch.output_rows]
            ends = np.searchsorted(batch.output_rows, [segment.first_row + segment.n for segment in batch.segments]).tolist()
        elif len(spans) == 1:
            state, span = batch.segments[0].state, spans[0].tolist()
            assert isinstance(state, CpuState)
            here = (state.kv.tables[memory_class], *self._chunks_of(span, span))
            if here != self._last:
                self._list(batch, memory_class, spans, ends, least=1 if self.by_chunks[0] else None)  # its plan always merges
                self._last = here
            return
        self._last = None
        self._list(batch, memory_class, spans, ends, least=2 if self.by_chunks[1] else None)

    def _list(self, batch: StepBatch, memory_class: int, spans: Spans, ends: Sequence[int] | None, *, least: int | None) -> None:
        """`ends`: where each segment's rows end among those of `spans`, None for those of the step. `least`: chunks that are shared
        out, None where threads share heads.
        """
        items, merges, n, n_merges, partials, row = self._items, self._merges, 0, 0, 0, 0
        for number, segment in enumerate(batch.segments):
            assert isinstance(segment.state, CpuState)
            table = segment.state.kv.tables[memory_class]
            stop = segment.first_row + segment.n if ends is None else ends[number]
            if stop == row + 1:
                first, end = self._chunks(spans[row], spans[row])
                n_chunks = end - first
                if least is not None and least <= n_chunks <= self.max_partials - partials:
                    part = items[n : n + n_chunks]
                    part[:, 0], part[:, 1], part[:, 2] = row, 1, table
                    part[:, 3] = np.arange(first, end)
                    part[:, 4] = part[:, 3] + 1
                    part[:, 5] = np.arange(partials, partials + n_chunks)
                    merges[n_merges] = row, partials, partials + n_chunks
                    n, n_merges, partials = n + n_chunks, n_merges + 1, partials + n_chunks
                else:
                    items[n] = row, 1, table, first, end, WHOLE_GROUP
                    n += 1
                row = stop
                continue
            while row < stop:
                rows = min(self.group, stop - row)
                items[n] = row, rows, table, *self._chunks(spans[row], spans[row + rows - 1]), WHOLE_GROUP
                n, row = n + 1, row + rows
        self._words[abi.WORK_N_ITEMS], self._words[abi.WORK_N_MERGES] = n, n_merges

    def _chunks(self, first_span: Spans, last_span: Spans) -> tuple[int, int]:
        return self._chunks_of(first_span.tolist(), last_span.tolist())

    def _chunks_of(self, first_span: Sequence[int], last_span: Sequence[int]) -> tuple[int, int]:
        """The chunks that a group sees from its first row's window on to its last row's end, the sinks' one included."""
        sinks, ring = self.memory.sinks, self.memory.ring
        _, n_sinks, first, _ = first_span
        _, _, last, length = last_span
        base = (first - sinks) // BLOCK * BLOCK
        end = last - sinks + (ring if last - sinks < base else 0) + length
        return base // CHUNK - (n_sinks > 0), -(-end // CHUNK)
