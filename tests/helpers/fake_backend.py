"""Back ends for tests of the engine: a toy whose logits tell exactly what was visible, and the NumPy reference with real slots."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pytest

import edgellm
from edgellm.backends import BACKENDS
from edgellm.backends.base import BackendOptions, Executable, Progress, StepBatch, StepSize, StepStopped, never
from edgellm.backends.cpu.backend import CpuBackend
from edgellm.graph import Graph, Node
from edgellm.memory.layout import MemoryLayout
from edgellm.ops._spec import Array
from edgellm.ops.attention import by_head, weighted
from edgellm.ops.rope import rotate
from edgellm.reference import Reference
from edgellm.weights import WeightStore

MAX_OUTPUTS = 32


def visible(row: npt.NDArray[np.int32], sinks: int, ring: int) -> npt.NDArray[np.int64]:
    """The slots that one row of a step's spans lets a token see, oldest first."""
    _, n_sinks, first, length = (int(x) for x in row)
    window = sinks + (first - sinks + np.arange(length)) % ring
    return np.concatenate([np.arange(n_sinks), window])


class ToyState:
    """Which token each slot of the full class holds, -1 where nothing was written."""

    def __init__(self, slots: int) -> None:
        self.tokens = np.full(slots, -1, np.int64)

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes

    def fork(self) -> ToyState:
        other = ToyState(0)
        other.tokens = self.tokens.copy()
        return other

    def save(self, file: BinaryIO) -> None:
        file.write(self.tokens.tobytes())


@dataclass(frozen=True, slots=True)
class Waiting:
    """A step that its waiter computes."""

    compute: Callable[[Callable[[], bool]], npt.NDArray[np.float32]]

    def wait(self, stop: Callable[[], bool] = never) -> dict[str, npt.NDArray[np.float32]]:
        return {"logits": self.compute(stop)}


class Toy:
    """Logits are a fixed vector turned by a hash of the visible tokens in their order: any wrong slot changes the answer.

    `log` has the number of tokens of each step (not kept past 1,000); `fail` may raise in a step's middle, after its keys are
    written; `logits_of` replaces the hash.
    """

    def __init__(self, n_vocab: int, layout: MemoryLayout, threads: int | None) -> None:
        self.layout, self.max_tokens, self.max_outputs = layout, layout.chunk, min(MAX_OUTPUTS, layout.chunk)
        self.step_size = StepSize(self.max_tokens)
        self.backend, self.threads = "toy", threads or 1
        self.closed = False
        self.log: list[int] = []
        self.fail: Callable[[], None] = lambda: None
        self.logits_of: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]] = self.turned
        self._base = np.random.default_rng(7).normal(0, 2, n_vocab).astype(np.float32)
        self._out = np.zeros((self.max_outputs, n_vocab), np.float32)
        self._distances = np.arange(layout.context, 0, -1) ** 2 % 9973
        self._busy = threading.Lock()

    runs_ahead = False
    max_segments = 32

    def new_state(self) -> ToyState:
        return ToyState(self.layout.classes[0].slots)

    def load_state(self, file: BinaryIO) -> ToyState:
        """Read a state that `save` wrote."""
        state = self.new_state()
        state.tokens[:] = np.frombuffer(file.read(state.nbytes), np.int64)
        return state

    def turned(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The logits after these visible tokens."""
        turn = int((tokens + 1) @ self._distances[-len(tokens) :]) % len(self._base)
        return np.concatenate([self._base[turn:], self._base[:turn]])

    def submit(self, batch: StepBatch) -> Waiting:
        return Waiting(lambda stop: self._compute(batch, stop))

    def _compute(self, batch: StepBatch, stop: Callable[[], bool]) -> npt.NDArray[np.float32]:
        assert self._busy.acquire(blocking=False), "two steps at once"
        try:
            if len(batch.tokens) > 1 and stop():
                raise StepStopped
            assert not self.closed and len(batch.segments) <= self.max_segments
            assert len(batch.tokens) <= self.max_tokens and len(batch.output_rows) <= self.max_outputs
            assert len({id(segment.state) for segment in batch.segments}) == len(batch.segments)
            parts = list(batch.split())
            for part in parts:
                self._state(part).tokens[part.spans[0][:, 0]] = part.tokens
            self.fail()
            if len(self.log) < 1000:
                self.log.append(len(batch.tokens))
            rows = [self._visible(part, row) for part in parts for row in part.output_rows]
            for k, seen in enumerate(rows):
                self._out[k] = self.logits_of(seen)
            return self._out[: len(rows)]
        finally:
            self._busy.release()

    def _visible(self, part: StepBatch, row: int) -> npt.NDArray[np.int64]:
        memory = self.layout.classes[0]
        seen = self._state(part).tokens[visible(part.spans[0][row], memory.sinks, memory.ring)]
        assert seen.min() >= 0, "a token sees a slot that was never written"
        return seen

    @staticmethod
    def _state(part: StepBatch) -> ToyState:
        state = part.segments[0].state
        assert isinstance(state, ToyState)
        return state

    def close(self) -> None:
        self.closed = True


class AheadToy(Toy):
    """A toy that computes steps of one token when they are submitted: what goes wrong in one is told to whoever waits for it."""

    runs_ahead = True

    def submit(self, batch: StepBatch) -> Waiting:
        if len(batch.tokens) > 1:
            return super().submit(batch)
        failure: BaseException | None = None
        try:
            logits = self._compute(batch, never).copy()
        except (KeyboardInterrupt, MemoryError) as error:
            failure = error

        def wait(stop: Callable[[], bool]) -> npt.NDArray[np.float32]:
            if failure is not None:
                raise failure
            return logits

        return Waiting(wait)


@dataclass(slots=True)
class ReferenceState:
    """Keys and values by layer: (heads, slots, dims)."""

    keys: list[Array]
    values: list[Array]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.keys, *self.values))

    def fork(self) -> ReferenceState:
        return ReferenceState([array.copy() for array in self.keys], [array.copy() for array in self.values])


class SlotReference(Reference):
    """The reference with the memory of a real back end: keys rotated at true positions in slots, two rotations of the query."""

    def __init__(self, graph: Graph, weights: WeightStore, layout: MemoryLayout, threads: int | None) -> None:
        super().__init__(graph, weights)
        self.layout, self.max_tokens, self.max_outputs = layout, layout.chunk, min(MAX_OUTPUTS, layout.chunk)
        self.step_size = StepSize(self.max_tokens)
        self.backend, self.threads = "reference", threads or 1

    runs_ahead = False
    max_segments = 32

    def new_state(self) -> ReferenceState:
        keys, values = [], []
        for layer, index in zip(self.layout.layers, self.layout.layer_class, strict=True):
            slots = self.layout.classes[index].slots
            keys.append(np.zeros((layer.n_kv_heads, slots, layer.dim_k), np.float32))
            values.append(np.zeros((layer.n_kv_heads, slots, layer.dim_v), np.float32))
        return ReferenceState(keys, values)

    def submit(self, batch: StepBatch) -> Waiting:
        return Waiting(lambda stop: np.concatenate([self._rows(part) for part in batch.split()]))

    def _rows(self, step: StepBatch) -> Array:
        state = step.segments[0].state
        assert isinstance(state, ReferenceState)
        self._state, self._step = state, step
        return self.logits(step.tokens.tolist(), step.positions.tolist())[step.output_rows]

    def evaluate(self, node: Node, inputs: list[Array]) -> Array:
        own = {"rope": self._rope, "attend": self._attention}.get(node.op)
        return own(node, *inputs) if own is not None else super().evaluate(node, inputs)

    def _rope(self, node: Node, x: Array) -> Array:
        positions = self._step.sink_positions if node.attrs["positions"] == "sink" else self._step.positions
        return rotate(self, node, x, positions)

    def _attention(self, node: Node, q: Array, q_sink: Array | None = None) -> Array:
        state, n_heads = node.attrs["state"], node.attrs["n_heads"]
        assert isinstance(state, int) and isinstance(n_heads, int)
        memory, spans = self.layout.classes[self.layout.layer_class[state]], self._step.spans[self.layout.layer_class[state]]
        keys, values = self._state.keys[state], self._state.values[state]
        keys[:, spans[:, 0]], values[:, spans[:, 0]] = self.held[state]
        rows = []
        for t, row in enumerate(spans):
            slots, n_sinks = visible(row, memory.sinks, memory.ring), int(row[1])
            both = [by_head(x[t : t + 1], n_heads) for x in (q if q_sink is None else q_sink, q)]
            rows.append(self._attend(node, both, keys[:, slots], values[:, slots], n_sinks))
        return np.concatenate(rows)

    def _attend(self, node: Node, queries: list[Array], keys: Array, values: Array, n_sinks: int) -> Array:
        """One token: heads of both queries stand side by side, each sees its part, and the softmax runs over both parts.

        Concatenating along the head dimension with zeros makes one dot product of the right query with each key.
        """
        q = np.concatenate(queries, axis=-1)
        split = np.zeros((*keys.shape[:2], 2 * keys.shape[2]), np.float32)
        split[:, :n_sinks, : keys.shape[2]] = keys[:, :n_sinks]
        split[:, n_sinks:, keys.shape[2] :] = keys[:, n_sinks:]
        seen = np.ones((1, keys.shape[1]), np.bool_)
        distance = np.arange(keys.shape[1])[None, ::-1]
        return weighted(node, q, split, values, seen, distance).swapaxes(0, 1).reshape(1, -1)

    def close(self) -> None:
        self._arrays.clear()


class Loader(CpuBackend):
    """Loads models on a fake back end, in the place of the CPU, and remembers the executable of the last one."""

    def __init__(self, make: Callable[[Graph, WeightStore, MemoryLayout, int | None], Executable], chunk: int = 16) -> None:
        self.make, self.chunk = make, chunk
        self.executables: list[Executable] = []

    def prepare(
        self, graph: Graph, weights: WeightStore, layout: MemoryLayout, options: BackendOptions, progress: Progress | None = None
    ) -> Executable:
        self.executables.append(self.make(graph, weights, layout, options.threads))
        if progress is not None:
            progress("kernels", 1, 1)
        return self.executables[-1]

    def load(self, path: Path, **options: object) -> edgellm.Model:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(BACKENDS, "cpu", self)
            return edgellm.load(path, **options)  # type: ignore[arg-type]  # passed through

    @property
    def toy(self) -> Toy:
        """The last executable, a toy."""
        toy = self.executables[-1]
        assert isinstance(toy, Toy)
        return toy


def toys(kind: type[Toy] = Toy) -> Loader:
    """Loads models as toys: only vocabulary and sizes of the file count."""
    return Loader(lambda graph, weights, layout, threads: kind(graph.nodes[graph.outputs["logits"]].n, layout, threads))


def references() -> Loader:
    """Loads models on the NumPy reference with slots."""
    return Loader(lambda graph, weights, layout, threads: SlotReference(graph, weights, layout, threads))
