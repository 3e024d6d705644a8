"""A model made ready for MLX: weights on the device, and a walk over the graph per step, behind the interface of all back ends."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Pace, Progress, State, StepInput, StepStopped, never
from edgellm.backends.mlx import device
from edgellm.backends.mlx.kv_cache import KVCache
from edgellm.backends.mlx.matrices import Matrix, load_matrix
from edgellm.backends.mlx.ops import OPS, Weights
from edgellm.backends.mlx.walk import Walk
from edgellm.errors import BackendError
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.spec import vectors
from edgellm.weights import WeightStore

SEPARATE = ("embed", "attention")                # evaluated with what only a step knows
BOUNDED = ("rms_norm", "layer_norm")


def prepare(graph: Graph, weights: WeightStore, layout: MemoryLayout, *, kv_type: str, threads: int | None,
            threads_batch: int | None = None, progress: Progress | None = None) -> MlxExecutable:
    """Copy the weights of an optimised graph to the device. `threads` and `threads_batch` mean nothing here: MLX has its own.

    Raises BackendError for an op without an evaluator and for what MLX itself refuses, Unsupported for a type without a mapping.
    """
    device.require()
    lacking = next((node.op for node in graph.nodes if node.op not in OPS and node.op not in SEPARATE), None)
    if lacking is not None:
        raise BackendError(f'the MLX back end has no op {lacking}, which this model needs; use backend="cpu".')
    gpu = device.on_gpu()
    return MlxExecutable(graph, weights, layout, kv_type=kv_type, half=gpu, trace=gpu, progress=progress)


class MlxExecutable:
    """Runs steps of one model. `half`: products in 16 bits, for GPUs; otherwise all sums are float32.

    `trace`: steps of one token are compiled by MLX, which fuses what lies between products. On CPUs that needs a C++ compiler.
    """

    backend = "mlx"
    threads = 1

    def __init__(self, graph: Graph, weights: WeightStore, layout: MemoryLayout, *, kv_type: str, half: bool,
                 trace: bool, progress: Progress | None = None) -> None:
        self.layout, self.max_tokens, self.max_outputs = layout, layout.chunk, min(device.MAX_OUTPUTS, layout.chunk)
        self.pace = Pace(layout.chunk)
        self._kv_type = kv_type
        device.hold()
        try:
            loaded = _load(graph, weights, half, progress)
            self._walk: Walk | None = Walk(graph, weights, loaded, layout, widen=not half, trace=trace)
        except RuntimeError as error:            # MLX's own errors: no memory on the device, for one
            device.release()
            raise BackendError(f"MLX could not load the model: {error}") from error
        except BaseException:
            device.release()
            raise

    def new_state(self) -> KVCache:
        return KVCache(self.layout, self._kv_type)

    def step(self, state: State, step: StepInput, stop: Callable[[], bool] = never) -> npt.NDArray[np.float32]:
        """One walk over the graph; see backends.base for shapes. Once begun it is not stopped."""
        if len(step.tokens) > 1 and stop():
            raise StepStopped
        started = time.perf_counter()
        logits = self.begin(state, step)()
        self.pace.note(len(step.tokens), time.perf_counter() - started)
        return logits

    def begin(self, state: State, step: StepInput) -> Callable[[], npt.NDArray[np.float32]]:
        """The step, given to the device: what is returned waits for its logits."""
        assert isinstance(state, KVCache)
        if self._walk is None:
            raise BackendError("this model is closed.")
        assert 0 < len(step.tokens) <= self.max_tokens and len(step.output_rows) <= self.max_outputs
        with _own_errors():
            computed = self._walk.step(state, step)

        def logits() -> npt.NDArray[np.float32]:
            with _own_errors():
                return computed()

        return logits

    def close(self) -> None:
        """Give the weights' memory back."""
        if self._walk is not None:
            self._walk.close()
            self._walk = None
            device.release()


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:                # MLX's only kind
        raise BackendError(f"MLX could not compute: {error}") from error


def _load(graph: Graph, weights: WeightStore, half: bool, progress: Progress | None) -> Weights:
    """All weights that are multiplied with. Tables of which rows are looked up stay in the file."""
    bounded: dict[str, bool] = {}
    for node in graph.nodes:
        if node.op == "matmul":
            name = node.weights[0]
            bounded[name] = bounded.get(name, True) and graph.nodes[node.inputs[0]].op in BOUNDED
    matrices: dict[str, Matrix] = {}
    for done, name in enumerate(bounded):
        if progress is not None:
            progress("weights to MLX", done, len(bounded))
        matrices[name] = load_matrix(weights[name], half)
        weights.drop(name)
    held = {name: mx.array(weights[name].array()) for name in vectors(graph)}
    mx.eval(*held.values(), *(array for matrix in matrices.values() for array in matrix.arrays))
    return Weights(matrices, held, frozenset(name for name, always in bounded.items() if always))


