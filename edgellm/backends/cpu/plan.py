"""From a graph to flat tables of records that threads walk: buffers by liveness, barriers only where data crosses threads.

There are three tables over the same buffers. In steps of one token each thread computes short rows (norms, sums, their quantised
form) for itself, in a buffer of its own, and continues with the rows of the next product, without a barrier between. In steps
of several tokens threads share the rows. Where long conversations are among them whose chunks threads share, partials of attention
are merged besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import abi, system
from edgellm.backends.cpu.barriers import Barriers, Use, partition_of_one
from edgellm.backends.cpu.buffers import MODES, Arena, Argument, Kernel, Mode, PerThread, Value, aligned
from edgellm.backends.cpu.kv_cache import KVLayout
from edgellm.backends.cpu.page_release import release_pages
from edgellm.backends.cpu.pool import Program
from edgellm.backends.cpu.record import Record, buffer_of
from edgellm.backends.cpu.recurrent import RecurrentLayout
from edgellm.backends.cpu.step_block import StepBlock
from edgellm.backends.cpu.traits import PANEL_ROWS, TILE_COLUMNS
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.ops import OPS
from edgellm.ops._spec import Patches
from edgellm.weights import WeightStore

REPLICATED_COLUMNS = 1 << 14  # of a row that each thread computes for itself rather than wait for the others
SHARES = (16, 8, 4, 2)  # chunks per thread with dynamic scheduling
RESERVE = 2  # times what values need at once, for copies of them and buffers at rest
CHUNK_BYTES = 1 << 17  # of weights that a chunk has at least: some 10 microseconds of reading
SMALL_CHUNKS_FROM = 8  # threads: prompts gain by smaller chunks with 8 and 16, and lose 1 to 3 % with two
AHEAD_BYTES = 1 << 18  # of weights that a waiting thread prefetches: second-level caches have 512 KiB


class PlanBuilder:
    """The state of planning that emitters use: values of nodes, buffers, weights as arrays, and the records so far."""

    def __init__(
        self,
        graph: Graph,
        weights: WeightStore,
        layout: MemoryLayout,
        *,
        max_tokens: int,
        max_outputs: int,
        max_segments: int,
        threads: int,
        threads_batch: int,
        kv_type: str,
    ) -> None:
        """`threads` walk steps of one token, `threads_batch` those of several."""
        self.graph, self.weights, self.layout = graph, weights, layout
        self.max_tokens, self.max_outputs, self.kv_type = max_tokens, max_outputs, kv_type
        self.threads, self.threads_batch, self.most_threads = threads, threads_batch, max(threads, threads_batch)
        self.max_segments, self.kv, self.recurrent = max_segments, KVLayout.plan(layout, kv_type), RecurrentLayout.plan(layout)
        self.step = StepBlock(layout, max_tokens, max_outputs, max_segments)
        self._last_use = _last_uses(graph)
        self.arena = Arena(RESERVE * self._most_alive())
        self.records: list[Record] = []
        self.barriers: Mapping[Mode, Barriers] = {mode: Barriers() for mode in MODES}
        self.kept: list[npt.NDArray[np.generic]] = []  # arrays whose addresses are in records
        self._vectors: dict[str, int] = {}
        self._derived: dict[tuple[int, str], Value] = {}  # (node, kernel) -> the quantised copy that it makes
        self.values: dict[int, Value] = {}
        self._owner: dict[int, int] = {}  # view -> the node whose buffer it shares
        self._scratch: dict[int, int] = {}
        self._refilled: list[npt.NDArray[np.uint8]] = []  # memory whose contents no step needs from the one before
        self._brought = set[int]()  # nodes whose memory is not the arena's

    # --- what emitters call -------------------------------------------------------------------------------------------
    def add(self, record: Record) -> None:
        self.records.append(record)
        uses = {single: record.uses(self.threads, single=single) for single in (True, False)}
        for mode, barriers in self.barriers.items():
            if barriers.add(uses[mode == "decode"] if mode in record.modes else ()):
                self.arena.barrier(mode)

    def produced_locally(self, value: Value, pieces: int) -> bool:
        """True if, in a step of one token, each thread has just written its own of these pieces."""
        return self.barriers["decode"].produced_locally(Use(value.buffer, partition_of_one(value, pieces, self.threads), False))

    def _most_alive(self) -> int:
        """Bytes of values that are alive at the same time, at most; outputs have memory of their own."""
        change = np.zeros(len(self.graph.nodes) + 1, np.int64)
        for index, node in enumerate(self.graph.nodes):
            if not OPS[node.op].is_view and index not in self.graph.outputs.values():
                nbytes = self.rows(index) * node.n * 4
                change[index] += nbytes
                change[self._last_use[index] + 1] -= nbytes
        return int(change.cumsum().max())

    def rows(self, index: int) -> int:
        """The most rows that node `index` can have."""
        return {"T": self.max_tokens, "R": self.max_outputs, "S": self.max_segments}[self.graph.nodes[index].rows]

    def kept_in(self, state: int) -> object:
        """Key of a state's memory in hazards; the layers of a model that reads documents share one."""
        return "kv", self.layout.layer_class[state] if self.layout.documents else (state,)

    def state_words(self, state: int) -> dict[str, int]:
        """Arguments of kernels that read and write a recurrent state."""
        return {
            "targets": self.step.state_targets.ctypes.data,
            "state_at": self.recurrent.at[state],
            "segments": self.step.segments.ctypes.data,
        }

    def output(self, index: int, *, replicated: bool = False) -> Value:
        """A fresh f32 buffer for node `index`; `replicated` where each thread may compute it for itself."""
        node = self.graph.nodes[index]
        replicated = replicated and index not in self.graph.outputs.values() and node.n <= REPLICATED_COLUMNS
        value = self._take(self.rows(index), node.n * 4, index, replicated=replicated)
        self.values[index] = value
        return value

    def brought(self, index: int, rows: Callable[[Patches], npt.NDArray[np.float32]]) -> Value:
        """Memory of its own for node `index`, whose rows every step brings."""
        n = self.graph.nodes[index].n
        block, address = aligned(self.rows(index) * n * 4)
        self._refilled.append(block)
        first = address - block.ctypes.data
        self.step.bring(block[first : first + self.rows(index) * n * 4].view(np.float32).reshape(-1, n), rows)
        self._brought.add(index)
        self.values[index] = Value(address, n * 4, n, -1 - index)
        return self.values[index]

    @property
    def encodes(self) -> bool:
        """True if its steps bring patches of images."""
        return bool(self._brought)

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers, and of the arrays that its records have addresses of."""
        return self.arena.nbytes + sum(array.nbytes for array in (*self.kept, *self._refilled))

    def release_buffers(self) -> None:
        """Give back the pages of all values, of what steps bring, and of scratch."""
        for block in (*self.arena.blocks, *self._refilled):
            release_pages(block)

    def in_place(self, index: int, of: int) -> Value | None:
        """The buffer of node `of` for node `index`, where nothing else reads it any more; None where something does."""
        value = self.values[of]
        watched = (
            of in self._brought or of in self._owner or of in self._owner.values() or any(node == of for node, _ in self._derived)
        )
        if value.replicated or watched or self._last_use[of] > index or value.n != self.graph.nodes[index].n:
            return None
        self.values[index] = self.values.pop(of)
        return value

    def view(self, index: int, of: int, first_column: int) -> None:
        """Let node `index` be columns of node `of`, without a copy."""
        base, node = self.values[of], self.graph.nodes[index]
        self.values[index] = replace(base, address=base.address + first_column * 4, n=node.n)
        self._owner[index] = self._owner.get(of, of)

    def derived(self, index: int, kind: str) -> Value | None:
        return self._derived.get((index, kind))

    def derive(self, index: int, kind: str, row_bytes: int, *, replicated: bool) -> Value:
        """A buffer for another form of node `index` (its quantised copy), which lives as long as the node does; for full tiles."""
        value = self._take(self.rows_of_tiles(index), row_bytes, index, replicated=replicated)
        self._derived[index, kind] = value
        return value

    def rows_of_tiles(self, index: int) -> int:
        """Rows that tiles of its activations have room for."""
        return -(-self.rows(index) // TILE_COLUMNS) * TILE_COLUMNS

    def _take(self, rows: int, row_bytes: int, index: int, *, replicated: bool) -> Value:
        return self.arena.take(
            max(rows, self.threads) if replicated else rows, row_bytes, self.graph.nodes[index].n, replicated=replicated
        )

    def vector(self, name: str) -> int:
        """Address of a weight as f32 values: the file's own bytes where they are f32, else a small copy."""
        if name not in self._vectors:
            weight = self.weights[name]
            if weight.type.name == "F32" and weight.address % 4 == 0:
                self._vectors[name] = weight.address
            else:
                self._vectors[name] = self.keep(np.ascontiguousarray(weight.array(), np.float32))
        return self._vectors[name]

    def keep(self, array: npt.NDArray[np.generic]) -> int:
        """Hold an array as long as the plan lives; its address."""
        self.kept.append(array)
        return int(array.ctypes.data)

    def scratch(self, nbytes: int) -> int:
        """Address of working memory of this size, shared by all records that ask for the same size."""
        if nbytes not in self._scratch:
            block, self._scratch[nbytes] = aligned(nbytes)
            self._refilled.append(block)
        return self._scratch[nbytes]

    def output_array(self, index: int) -> npt.NDArray[np.float32]:
        """The rows of an output, as many as there can be."""
        value, rows = self.values[index], self.rows(index)
        table = self.arena.block(value)[: rows * value.stride].view(np.float32).reshape(rows, -1)
        return table[:, : value.n]

    # --- the walk over the graph --------------------------------------------------------------------------------------
    def release_after(self, index: int) -> None:
        """Give back the buffers of values that nothing after node `index` reads."""
        for used in [i for i in self.values if self._last_use[self._owner.get(i, i)] <= index and i not in self._owner]:
            if used in self.graph.outputs.values():
                continue
            value = self.values.pop(used)
            if used not in self._brought:
                self.arena.give_back(value.buffer)
            for key in [key for key in self._derived if self._owner.get(key[0], key[0]) == used]:
                self.arena.give_back(self._derived.pop(key).buffer)
            for view in [v for v, owner in self._owner.items() if owner == used]:
                self.values.pop(view, None)
                del self._owner[view]

    @property
    def kernels(self) -> set[str]:
        """The kernels of all records, and those that these call."""
        called = {argument.name for record in self.records for argument in record.arguments if isinstance(argument, Kernel)}
        return called | {record.kernel for record in self.records}

    def chosen(self, mode: Mode) -> list[int]:
        """The numbers of the records of a table."""
        return [number for number, record in enumerate(self.records) if mode in record.modes]

    def program(self, addresses: Mapping[str, int], mode: Mode) -> Program:
        """The program of a mode. `addresses`: of the kernels."""
        decode, barriers = mode == "decode", self.barriers[mode]
        threads, chosen = self.threads if decode else self.threads_batch, self.chosen(mode)
        table = np.zeros((threads, len(chosen), abi.RECORD_WORDS), np.int64)
        for place, number in enumerate(chosen):
            record, words = self.records[number], table[:, place]
            words[:, abi.KERNEL] = addresses[record.kernel]
            words[:, abi.STEP] = self.step.words.ctypes.data
            for ith in range(threads):
                words[ith, abi.FIRST_ARGUMENT : abi.FIRST_ARGUMENT + len(record.arguments)] = [
                    _resolved(argument, ith, decode, addresses) for argument in record.arguments
                ]
            words[:, abi.REPLICATED] = decode and record.replicated
            if barriers.before[number]:
                table[:, place - 1, abi.BARRIER_AFTER] = 1
        table[:, -1, abi.BARRIER_AFTER] = 1  # the step ends when all threads are through
        if not decode or system.cores_differ():  # a single token on equal cores is read 2 % faster in equal shares
            records, ends = [self.records[number] for number in chosen], table[0, :, abi.BARRIER_AFTER]
            for place, chunks in _chunks(records, ends, threads, decode=decode):
                table[:, place, abi.CHUNKS] = chunks
        else:
            _look_ahead(table, [self.records[number] for number in chosen])
        return Program(table)


def _look_ahead(table: npt.NDArray[np.int64], records: Sequence[Record]) -> None:
    """Of each record that a barrier follows, the weights that each thread reads first after it: those that it prefetches while it
    waits for others. After the last one come those of the next step.
    """
    threads = len(table)
    following: Record | None = next((record for record in records if _reads(record)), None)
    for place in range(len(records) - 1, -1, -1):
        if table[0, place, abi.BARRIER_AFTER] and following is not None and following.weights and following.pieces:
            row_bytes = following.weight_bytes // following.pieces
            ends = [following.pieces * ith // threads * row_bytes for ith in range(threads + 1)]
            table[:, place, abi.AHEAD] = [following.weights + begin for begin in ends[:-1]]
            table[:, place, abi.AHEAD_BYTES] = np.minimum(np.diff(ends), AHEAD_BYTES)
        if _reads(records[place]):
            following = records[place]


def _reads(record: Record) -> bool:
    """True if it reads so much from memory that lines prefetched before it may be evicted."""
    return bool(record.weight_bytes or record.key_bytes)


def _resolved(argument: Argument, ith: int, decode: bool, addresses: Mapping[str, int]) -> int:
    if isinstance(argument, Kernel):
        return addresses[argument.name]
    if isinstance(argument, PerThread):
        return argument.address + ith * argument.step * (decode or argument.always)
    return argument


def _chunks(records: Sequence[Record], ends: npt.NDArray[np.int64], threads: int, *, decode: bool) -> Iterator[tuple[int, int]]:
    """(place, chunks) of records from which on, to the next barrier, chunks are scheduled dynamically.

    Slower or busy cores then get less of the products. Records run together up to a barrier because each chunk touches only what
    is its own, which must hold for chunks as it does for threads. `ends`: 1 where a barrier follows.
    """
    first = 0
    for end in (np.flatnonzero(ends) + 1).tolist():
        while decode and first < end and records[first].replicated:
            first += 1
        chunks = _chunks_of(records[first:end], threads, decode)
        if chunks:
            yield first, chunks
        first = end


def _pieces_of_common_buffers(records: Sequence[Record]) -> list[set[int]]:
    """In how many pieces records cut each buffer that some of them write."""
    found: dict[object, set[int]] = {}
    written = {buffer_of(operand) for record in records for operand in record.writes}
    for record in records:
        for operand in (*record.reads, *record.reads_all, *record.writes):
            if record.pieces and buffer_of(operand) in written:
                found.setdefault(buffer_of(operand), set()).add(record.pieces)
    return list(found.values())


def _chunks_of(records: Sequence[Record], threads: int, decode: bool) -> int:
    """Number of chunks for these records; 0 for static partitions."""
    if threads == 1 or any(record.by_thread or (decode and record.replicated) for record in records):
        return 0
    common = _pieces_of_common_buffers(records) if decode else []
    rows = min((record.weight_rows or record.pieces or 0 for record in records if record.weight_bytes), default=0)
    nbytes = sum(record.weight_bytes for record in records)
    least_bytes, least_rows = CHUNK_BYTES, PANEL_ROWS
    if not decode and threads >= SMALL_CHUNKS_FROM:
        least_bytes, least_rows = CHUNK_BYTES // 4, PANEL_ROWS // 2
    for chunks in (share * threads for share in SHARES):
        alike = all(len(pieces) == 1 or all(n % chunks == 0 for n in pieces) for pieces in common)
        if alike and nbytes >= chunks * least_bytes and rows >= chunks * least_rows:
            return chunks
    return 0


def _last_uses(graph: Graph) -> list[int]:
    """For each node the last node that reads it; views extend the life of what they look at."""
    last = list(range(len(graph.nodes)))
    for index, node in enumerate(graph.nodes):
        for source in node.inputs:
            last[source] = max(last[source], index)
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if OPS[node.op].is_view:
            last[node.inputs[0]] = max(last[node.inputs[0]], last[index])
    return last
