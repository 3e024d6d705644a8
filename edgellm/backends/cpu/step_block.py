"""Inputs of a step at fixed addresses that kernels read: tokens, positions, spans, rotary tables, lists of work, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import StepBatch
from edgellm.backends.cpu import abi
from edgellm.backends.cpu.state import CpuState
from edgellm.graph import RopeSpec, Rows
from edgellm.memory.layout import MemoryClass, MemoryLayout
from edgellm.memory.sequence import Spans
from edgellm.ops._spec import Given, Patches
from edgellm.rope import cos_sin, frequencies

Floats = npt.NDArray[np.float32]
AHEAD = 32  # positions
BLOCK, CHUNK = abi.ATTENTION_BLOCK, abi.ATTENTION_CHUNK
WHOLE_GROUP = -1  # instead of a partial's number
ByChunks = tuple[bool, bool]  # whether threads share chunks, in steps of one token and of several


class RopeTable:
    """cos and sin (rows, n_rot/2) f32 of one rotary embedding at one kind of position; angles in float64."""

    def __init__(self, spec: RopeSpec, factors: npt.NDArray[np.float32] | None, max_rows: Mapping[Rows, int]) -> None:
        self._spec, self._frequencies, self._max_rows = spec, frequencies(spec, factors), max_rows
        self._tables: dict[Rows, tuple[Floats, Floats]] = {}
        self._first, self._next = 0, (np.empty(0, np.float32),) * 2  # of positions that follow each other

    def of(self, rows: Rows) -> tuple[Floats, Floats]:
        """cos and sin of these rows of a step."""
        if rows not in self._tables:
            shape = self._max_rows[rows], len(self._frequencies[0])
            self._tables[rows] = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        return self._tables[rows]

    def fill(self, positions: npt.NDArray[np.int64], output_rows: npt.NDArray[np.int32]) -> None:
        angles = self._cos_sin(positions)
        for rows, table in self._tables.items():
            for mine, given in zip(table, angles, strict=True):
                mine[: len(given if rows == "T" else output_rows)] = given if rows == "T" else given[output_rows]

    def fill_one(self, position: int) -> None:
        """`fill` for one token: positions are computed ahead, which spares all of NumPy's calls but the copies."""
        at = position - self._first
        if not 0 <= at < len(self._next[0]):
            self._next, self._first, at = self._cos_sin(np.arange(position, position + AHEAD)), position, 0
        for table in self._tables.values():
            for mine, given in zip(table, self._next, strict=True):
                mine[0] = given[at]

    @np.errstate(all="ignore")  # damaged factors give NaN or Inf logits, which is an error of its own
    def _cos_sin(self, positions: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        return cos_sin(self._spec, positions, *self._frequencies)


class AttentionWork:
    """Attention's work in a step, listed before threads walk the plan: groups of rows of one conversation by chunks of its keys,
    for layers of one memory class whose groups have `group` rows at most, of all tokens' rows or the wanted ones.

    A group's chunks are added up in order, by the thread that has the group. Threads share the key/value heads evenly where
    these are a multiple of them. Otherwise, of conversations that continue by one token, those that see several chunks are
    shared out chunk by chunk, each of which leaves a partial, and `merge` adds these up in the same order: so a long
    conversation keeps all threads busy, and its bits are the same.

    `words`: int64, n_items and n_merges, then `items` (n, 6): first row, rows, page table, first chunk, end chunk, number of
    the partial that the chunk leaves or WHOLE_GROUP; and `merges` (n, 3): row, first partial, end partial. Chunks count CHUNK
    slots of the ring from its start, without wrapping; the sinks are the chunk before a group's first.
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


class StepBlock:
    """The step block and the arrays that it describes. Records hold their addresses; `fill` changes their contents."""

    def __init__(self, layout: MemoryLayout, max_tokens: int, max_outputs: int, max_segments: int) -> None:
        self.words = np.zeros(abi.STEP_WORDS, np.int64)
        self.tokens = np.zeros(max_tokens, np.int32)
        self.positions = np.zeros(max_tokens, np.int32)
        self.adapters = np.zeros(max_tokens, np.int32)
        self.output_rows = np.zeros(max_outputs, np.int32)
        self.types = np.zeros(max_tokens, np.int32)
        self.segments = np.zeros((max_segments, 2), np.int64)  # first row, rows
        self.spans = tuple(np.zeros((max_tokens, 4), np.int32) for _ in layout.classes)
        self.targets = tuple(np.zeros((max_tokens, 3), np.int64) for _ in layout.classes)  # see KVCache.write_to
        self.state_targets = np.zeros((max_tokens, 2), np.int64)  # see RecurrentStates.write_to
        self._layout, self._max_segments = layout, max_segments
        self._max_rows: Mapping[Rows, int] = {"T": max_tokens, "R": max_outputs}
        self._output_spans: dict[int, npt.NDArray[np.int32]] = {}  # of the wanted rows, by memory class
        self._work: dict[tuple[int, int, Rows, ByChunks], AttentionWork] = {}
        self._tables: dict[tuple[RopeSpec, str], RopeTable] = {}
        self.which = np.full(max_tokens, -1, np.int32)
        self._vectors: dict[int, npt.NDArray[np.int64]] = {}  # by column: address of the first one's there, bytes between them
        self._vectors_of: Given | None = None  # of this step: kept while kernels read it
        self._brought: list[tuple[Floats, Callable[[Patches], Floats]]] = []

    def ids(self, source: str) -> npt.NDArray[np.int32]:
        """Indices of embedding rows."""
        return {"tokens": self.tokens, "positions": self.positions, "adapters": self.adapters, "types": self.types}[source]

    def vectors(self, n: int, level: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """The vector that each row of a step is, or -1; and where the pieces (n,) of a level are: see `_vectors`."""
        return self.which, self._vectors.setdefault(n * level, np.zeros(2, np.int64))

    def bring(self, array: Floats, rows: Callable[[Patches], Floats]) -> None:
        """Let every step fill the first rows of `array` with those of its patches."""
        self._brought.append((array, rows))

    def rope_table(self, spec: RopeSpec, positions: str, factors: npt.NDArray[np.float32] | None) -> RopeTable:
        """The table of `spec` at "true" or "sink" positions; layers with equal specs share one."""
        key = (spec, positions)
        if key not in self._tables:
            self._tables[key] = RopeTable(spec, factors, self._max_rows)
        return self._tables[key]

    def spans_of(self, memory_class: int, rows: Rows) -> npt.NDArray[np.int32]:
        """The spans (rows, 4) of a class."""
        if rows == "T":
            return self.spans[memory_class]
        return self._output_spans.setdefault(memory_class, np.zeros((self._max_rows[rows], 4), np.int32))

    def attention_work(self, memory_class: int, group: int, rows: Rows, by_chunks: ByChunks) -> AttentionWork:
        """The list of attention's work in layers of a class that take `group` of these rows at a time."""
        key = (memory_class, group, rows, by_chunks)
        if key not in self._work:
            self._work[key] = AttentionWork(
                self._layout.classes[memory_class], group, self._max_rows[rows], self._max_segments, by_chunks
            )
        return self._work[key]

    def attention_lists(self) -> dict[int, AttentionWork]:
        """The lists of attention's work by their address."""
        return {work.address: work for work in self._work.values()}

    @property
    def has_merges(self) -> bool:
        """True if attention's partials have to be merged after the chunks of some layers."""
        return any(work.has_merges for work in self._work.values())

    def fill(self, step: StepBatch) -> None:
        """Set all of it to a step, whose segments' states are made ready to be written."""
        if len(step.tokens) == 1 and step.patches is None:
            self._fill_one(step)
            return
        n_tokens, n_outputs = len(step.tokens), len(step.output_rows)
        self.words[abi.N_TOKENS], self.words[abi.N_OUTPUTS] = n_tokens, n_outputs
        self.tokens[:n_tokens] = step.tokens
        self.positions[:n_tokens] = step.positions
        self.types[:n_tokens] = 0 if step.types is None else step.types
        self.output_rows[:n_outputs] = step.output_rows
        for held, given in zip(self.spans, step.spans, strict=True):
            held[:n_tokens] = given
        for index, wanted in self._output_spans.items():
            wanted[:n_outputs] = step.spans[index][step.output_rows]
        self.words[abi.N_SEGMENTS] = len(step.segments)
        self.segments[: len(step.segments)] = [(segment.first_row, segment.n) for segment in step.segments]
        for segment in step.segments:
            self.adapters[segment.first_row : segment.first_row + segment.n] = segment.adapters
        for state, mine in self._written(step):
            for index, (spans, targets) in enumerate(zip(step.spans, self.targets, strict=True)):
                state.kv.write_to(index, spans[mine], targets[mine])
            if len(step.state_slots):
                state.recurrent.write_to(step.state_slots[mine], self.state_targets[mine])
        for (index, _, rows, _), work in self._work.items():
            work.fill(step, index, rows)
        self._fill_vectors(step)
        for (spec, kind), table in self._tables.items():
            table.fill(step.coordinates(kind) if spec.axes else step.turned_by(kind), step.output_rows)
        if step.patches is not None:
            for array, rows_of in self._brought:
                brought = rows_of(step.patches)
                array[: len(brought)] = brought

    def _fill_one(self, step: StepBatch) -> None:
        """`fill` of the usual step. After a walk over the weights Python's own data is in no cache, so every call counts."""
        state, words, wanted = step.segments[0].state, self.words, len(step.output_rows)
        assert isinstance(state, CpuState)
        words[abi.N_TOKENS], words[abi.N_OUTPUTS], words[abi.N_SEGMENTS] = 1, wanted, 1
        self.tokens[0], self.positions[0], self.output_rows[0] = step.tokens[0], step.positions[0], 0
        self.segments[0], self.adapters[0] = (0, 1), step.segments[0].adapters
        for index, given in enumerate(step.spans):
            self.spans[index][0] = given[0]
            state.kv.write_to(index, given, self.targets[index])
        for index, held in self._output_spans.items():
            held[0] = step.spans[index][0]
        if len(step.state_slots):
            state.recurrent.write_to(step.state_slots, self.state_targets)
        for (index, _, rows, _), work in self._work.items():
            work.fill(step, index, rows)
        self._fill_vectors(step)
        true, sink = int(step.positions[0]), int(step.sink_positions[0])
        for (spec, kind), table in self._tables.items():
            if spec.axes and step.given is not None:
                table.fill(step.coordinates(kind), step.output_rows)
            else:
                table.fill_one(true if kind == "true" else sink)

    def _fill_vectors(self, step: StepBatch) -> None:
        if not self._vectors:
            return
        self.which[: len(step.tokens)] = -1 if step.given is None else step.given.which
        self._vectors_of = step.given
        if step.given is not None:
            for column, words in self._vectors.items():
                words[:] = step.given.rows.ctypes.data + 4 * column, step.given.rows.strides[0]

    def _written(self, step: StepBatch) -> Iterator[tuple[CpuState, slice]]:
        """The states that a step writes, and the rows of each. Documents all have the same one."""
        if self._layout.documents:
            state = step.segments[0].state
            assert isinstance(state, CpuState)
            yield state, slice(0, len(step.tokens))
            return
        for segment in step.segments:
            assert isinstance(segment.state, CpuState)
            yield segment.state, slice(segment.first_row, segment.first_row + segment.n)
