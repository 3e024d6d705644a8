"""Back ends: the same graph on different hardware, found by name."""
from __future__ import annotations

from typing import Protocol

from edgellm.backends.base import Executable, Progress
from edgellm.errors import BackendError, OptionError
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.weights import WeightStore


class Prepare(Protocol):
    def __call__(self, graph: Graph, weights: WeightStore, layout: MemoryLayout, *, kv_type: str, threads: int | None,
                 threads_batch: int | None = None, progress: Progress | None = None) -> Executable: ...


def load_backend(name: str) -> Prepare:
    """The `prepare` function of back end `name` ("auto", "cpu" or "mlx"); nothing heavy is imported before this call."""
    if name in ("auto", "cpu"):
        from edgellm.backends.cpu.executable import prepare

        return prepare
    if name == "mlx":
        raise BackendError('the MLX back end is not there yet; use backend="cpu".')
    raise OptionError(f'backend="{name}" does not exist; choose "auto" or "cpu".')
