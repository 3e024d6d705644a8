"""A model made ready for MLX: weights on the device, and a walk over the graph per step, behind the interface of all back ends."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import BinaryIO

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Pending, Progress, StepBatch, StepSize, StepStopped, never
from edgellm.backends.mlx import device, groups
from edgellm.backends.mlx.choosing import chosen
from edgellm.backends.mlx.filling import load_matrix
from edgellm.backends.mlx.inputs import Array, Floats, MlxWeights
from edgellm.backends.mlx.kv_cache import MlxKVCache
from edgellm.backends.mlx.matrices import Dense, Matrix
from edgellm.backends.mlx.ops import OPS
from edgellm.backends.mlx.walk import Walk
from edgellm.errors import BackendError
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.ops import OPS as DECLARED
from edgellm.ops import weight_uses
from edgellm.options.sampling import TokenChoice
from edgellm.spec import vectors
from edgellm.weights import WeightStore


def prepare(
    graph: Graph, weights: WeightStore, layout: MemoryLayout, *, kv_type: str, progress: Progress | None = None
) -> MlxExecutable:
    """Copy the weights of an optimised graph to the device. There are no threads to choose: MLX has its own.

    Raises BackendError for an op without an evaluator and for what MLX itself refuses, Unsupported for a type without a mapping.
    """
    lacking = next((node.op for node in graph.nodes if node.op not in OPS), None)
    if lacking is not None:
        raise BackendError(f"the MLX back end has no op {lacking}, which this model needs; use the back end cpu.")
    gpu = device.on_gpu()
    return MlxExecutable(graph, weights, layout, kv_type=kv_type, half=gpu, trace=gpu, progress=progress)


class MlxStep:
    """A step that goes to the device at once where each conversation has one token, else when it is waited for; on CPUs, which
    compute `several` rows as they are begun, only fewer. Once begun, it is not stopped. Segments that share a state, as
    documents do, are computed one after the other. `ids` (1,): the token, where the device chose it.
    """

    def __init__(self, executable: MlxExecutable, batch: StepBatch, ids: Array | None = None) -> None:
        self._ids = ids
        shared = len({id(segment.state) for segment in batch.segments}) < len(batch.segments)
        self._executable, self._parts = executable, list(batch.split()) if shared else [batch]
        first = self._parts[0]
        waits = _has_prompt(first) or len(first.tokens) >= executable.several
        self._begun = None if waits else executable.begin(first, ids=ids)

    def wait(self, stop: Callable[[], bool] = never) -> Mapping[str, npt.NDArray[np.float32]]:
        """See backends.base.Pending."""
        found: list[Mapping[str, npt.NDArray[np.float32]]] = []
        for part in self._parts:
            begun, self._begun, started = self._begun, None, time.perf_counter()
            if begun is None:
                if _has_prompt(part) and stop():
                    raise StepStopped
                begun = self._executable.begin(part, stop)
            found.append(_read(begun))
            if _has_prompt(part):
                self._executable.step_size.note(len(part.tokens), time.perf_counter() - started)
        wanted, names = [outputs for outputs in found if outputs], self._executable.outputs
        if not wanted:
            return dict.fromkeys(names, np.empty((0, 0), np.float32))
        return wanted[0] if len(wanted) == 1 else {name: np.concatenate([each[name] for each in wanted]) for name in names}

    def logits(self) -> Array | None:
        """(1, n_vocab) of a single token that was begun, on the device."""
        return None if self._begun is None else self._begun.get("logits")

    def token(self) -> int:
        """See backends.base.Guessed."""
        assert self._ids is not None
        with device.own_errors("compute"):
            return int(self._ids.item())


def _read(outputs: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
    """Outputs of the device, newly allocated."""
    with device.own_errors("compute"):
        return {name: np.ascontiguousarray(rows) for name, rows in outputs.items()}


def _has_prompt(batch: StepBatch) -> bool:
    """True if some conversation has several tokens in a step."""
    return len(batch.tokens) > len(batch.segments)


class MlxExecutable:
    """Runs steps of one model. `half`: products in 16 bits, for GPUs; otherwise all sums are float32.

    `trace`: steps of one token are compiled by MLX, which fuses what lies between products. On CPUs that needs a C++ compiler.
    """

    backend = "mlx"
    runs_ahead = True
    threads = 1
    max_segments = 32

    def __init__(
        self,
        graph: Graph,
        weights: WeightStore,
        layout: MemoryLayout,
        *,
        kv_type: str,
        half: bool,
        trace: bool,
        progress: Progress | None = None,
    ) -> None:
        self.layout, self.max_tokens = layout, layout.chunk
        self.max_outputs, self.outputs = min(max(device.MAX_OUTPUTS, layout.outputs), layout.chunk), tuple(graph.outputs)
        self.step_size = StepSize(layout.chunk)
        self._kv_type, self.half = kv_type, half
        device.hold()
        self._release = weakref.finalize(self, device.release)
        self._release.atexit = False
        try:
            with device.own_errors("load the model"):
                loaded = _load(graph, weights, half, progress)
                self._walk: Walk | None = Walk(graph, weights, loaded, layout, kv_type=kv_type, widen=not half, trace=trace)
                self.several = self._walk.several
        except BaseException:
            self._release()
            raise

    def new_state(self) -> MlxKVCache:
        with device.own_errors("make room for keys and values"):
            return MlxKVCache(self.layout, self._kv_type)

    def load_state(self, file: BinaryIO) -> MlxKVCache:
        """See backends.base.Executable."""
        with device.own_errors("make room for keys and values", (RuntimeError, MemoryError)):
            return MlxKVCache.load(self.layout, self._kv_type, file)

    def submit(self, batch: StepBatch) -> MlxStep:
        """Give a step of single tokens to the device; others go there when they are waited for."""
        if self._walk is None:
            raise BackendError("this model is closed.")
        assert 0 < len(batch.tokens) <= self.max_tokens and len(batch.output_rows) <= self.max_outputs
        return MlxStep(self, batch)

    def follow(self, pending: Pending, batch: StepBatch, choice: TokenChoice) -> MlxStep | None:
        """See backends.base.Chooser."""
        logits = pending.logits() if isinstance(pending, MlxStep) else None
        if logits is None or self._walk is None or not self._walk.takes_ids:
            return None
        with device.own_errors("compute"):
            ids = chosen(logits[0], choice)
            mx.async_eval(ids)  # by itself, so that it can be waited for alone
        return MlxStep(self, batch, ids)

    def begin(self, batch: StepBatch, stop: Callable[[], bool] = never, ids: Array | None = None) -> dict[str, Array]:
        """The outputs of a step that is given to the device, to be waited for. Raises StepStopped for steps of encoders."""
        if self._walk is None:
            raise BackendError("this model is closed.")
        with device.own_errors("compute"):
            return self._walk.step(batch, stop, ids)

    def release_buffers(self) -> None:
        """Give the memory of freed arrays back to the system; see backends.base.Idle."""
        mx.clear_cache()

    def close(self) -> None:
        """Give the weights' memory back."""
        if self._walk is not None:
            self._walk.close()
            self._walk = None
            self._release()


def _load(graph: Graph, weights: WeightStore, half: bool, progress: Progress | None) -> MlxWeights:
    """All weights that are multiplied with, and small tables. Other tables of which rows are looked up stay in the file."""
    bounded: dict[str, bool] = {}
    matrices: dict[str, Matrix] = {}
    tables: dict[str, Floats] = {}
    for index, node in enumerate(graph.nodes):
        for use in weight_uses(graph, index):
            if use.role == "transposed":
                matrices[use.name] = Dense(mx.array(np.ascontiguousarray(weights[use.name].array().T)), half)
            elif use.role == "table" and "source" not in node.attrs:
                tables[use.name] = weights[use.name].array()
            elif use.role in device.MULTIPLIED:
                bounded[use.name] = bounded.get(use.name, True) and DECLARED[graph.nodes[node.inputs[0]].op].bounded
    names = list(bounded | groups.held(graph, weights))
    for done, name in enumerate(names):
        if progress is not None:
            progress("weights to MLX", done, len(names))
        matrices[name] = load_matrix(weights[name], half)
        weights.drop(name)
    # In the shapes that ops declare: files have dimensions of one before or after, as their converter left them.
    held = {name: mx.array(weights[name].array().reshape(shape)) for name, shape in vectors(graph).items()}
    mx.eval(*held.values(), *(array for matrix in matrices.values() for array in matrix.arrays))
    return MlxWeights(matrices, held, frozenset(name for name, always in bounded.items() if always), tables)
