"""From a graph to a flat table of records that threads walk: buffers by liveness, barriers only where data crosses threads."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import control
from edgellm.backends.cpu.buffers import Arena, Value, aligned
from edgellm.backends.cpu.step_block import StepBlock
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.weights import WeightStore


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel call: which kernel, its argument words, and what it reads and writes (buffer indices, or ("kv", layer))."""

    kernel: str
    arguments: tuple[int, ...]
    reads: frozenset[object]
    writes: frozenset[object]


class PlanBuilder:
    """What the emitters of `ops.py` work with: values of nodes, buffers, weights as arrays, and the list of records so far."""

    def __init__(self, graph: Graph, weights: WeightStore, layout: MemoryLayout, *, max_tokens: int, max_outputs: int,
                 threads: int, kv_type: str) -> None:
        self.graph, self.weights, self.layout = graph, weights, layout
        self.max_tokens, self.max_outputs, self.threads, self.kv_type = max_tokens, max_outputs, threads, kv_type
        self.step = StepBlock(layout, max_tokens, max_outputs)
        self.arena = Arena()
        self.records: list[Record] = []
        self.kept: list[npt.NDArray[np.generic]] = []        # arrays whose addresses stand in records
        self._vectors: dict[str, int] = {}
        self._derived: dict[tuple[int, str], Value] = {}     # (node, activation format) -> its quantised copy
        self.values: dict[int, Value] = {}
        self._last_use = _last_uses(graph)
        self._owner: dict[int, int] = {}                     # view -> the node whose buffer it shares
        self._scratch: dict[int, int] = {}

    # --- what emitters call -------------------------------------------------------------------------------------------
    def add(self, kernel: str, arguments: Sequence[int], *, reads: Sequence[object], writes: Sequence[object]) -> None:
        assert len(arguments) <= control.BARRIER_AFTER - control.FIRST_ARGUMENT
        self.records.append(Record(kernel, tuple(arguments), frozenset(reads), frozenset(writes)))

    def rows(self, index: int) -> int:
        """The most rows that node `index` can have."""
        return self.max_tokens if self.graph.nodes[index].rows == "T" else self.max_outputs

    def output(self, index: int) -> Value:
        """A fresh f32 buffer for node `index`."""
        node = self.graph.nodes[index]
        value = self.arena.take(self.rows(index), node.n * 4, node.n)
        self.values[index] = value
        return value

    def view(self, index: int, of: int, first_column: int) -> None:
        """Let node `index` be columns of node `of`, without a copy."""
        base, node = self.values[of], self.graph.nodes[index]
        self.values[index] = Value(base.address + first_column * 4, base.stride, node.n, base.buffer)
        self._owner[index] = self._owner.get(of, of)

    def derived(self, index: int, kind: str) -> Value | None:
        return self._derived.get((index, kind))

    def derive(self, index: int, kind: str, row_bytes: int) -> Value:
        """A buffer for another form of node `index` (its quantised copy), which lives as long as the node does."""
        value = self.arena.take(self.rows(index), row_bytes, self.graph.nodes[index].n)
        self._derived[index, kind] = value
        return value

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
        """Address of working memory of this size; whoever asks for the same size gets the same memory."""
        if nbytes not in self._scratch:
            block, self._scratch[nbytes] = aligned(nbytes)
            self.kept.append(block)
        return self._scratch[nbytes]

    # --- the walk over the graph --------------------------------------------------------------------------------------
    def release_after(self, index: int) -> None:
        """Give back the buffers of values that nothing after node `index` reads."""
        for used in [i for i in self.values if self._last_use[self._owner.get(i, i)] <= index and i not in self._owner]:
            if used == self.graph.output:
                continue
            self.arena.give_back(self.values.pop(used).buffer)
            for key in [key for key in self._derived if self._owner.get(key[0], key[0]) == used]:
                self.arena.give_back(self._derived.pop(key).buffer)
            for view in [v for v, owner in self._owner.items() if owner == used]:
                self.values.pop(view, None)
                del self._owner[view]

    def finish(self, addresses: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """The table of records, (n, 32) int64, with a barrier only before a record that touches what others have written."""
        table = np.zeros((len(self.records), control.RECORD_WORDS), np.int64)
        reads: set[object] = set()
        writes: set[object] = set()
        for i, record in enumerate(self.records):
            conflict = (record.reads & writes) or (record.writes & (reads | writes))
            if conflict and i:
                table[i - 1, control.BARRIER_AFTER] = 1
                reads, writes = set(), set()
            reads |= record.reads
            writes |= record.writes
            table[i, control.KERNEL] = addresses[record.kernel]
            table[i, control.STEP] = self.step.words.ctypes.data
            table[i, control.FIRST_ARGUMENT : control.FIRST_ARGUMENT + len(record.arguments)] = record.arguments
        table[-1, control.BARRIER_AFTER] = 1                 # the step ends when all threads are through
        return table


def _last_uses(graph: Graph) -> list[int]:
    """For each node the last node that reads it; views extend the life of what they look at."""
    last = list(range(len(graph.nodes)))
    for index, node in enumerate(graph.nodes):
        for source in node.inputs:
            last[source] = max(last[source], index)
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if node.op == "slice":
            last[node.inputs[0]] = max(last[node.inputs[0]], last[index])
    return last
