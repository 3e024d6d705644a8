"""Back ends: the same graph on different hardware, found by name."""
from __future__ import annotations

from typing import Protocol

from edgellm.backends.base import Executable, Progress
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.weights import WeightStore


class Prepare(Protocol):
    def __call__(self, graph: Graph, weights: WeightStore, layout: MemoryLayout, *, kv_type: str, threads: int | None,
                 threads_batch: int | None = None, parallel: int = 1, progress: Progress | None = None) -> Executable: ...


def load_backend(name: str) -> Prepare:
    """The `prepare` function of back end `name` ("cpu" or "mlx"); nothing heavy is imported before this call.

    Raises BackendError where MLX is not installed.
    """
    if name == "mlx":
        from edgellm.backends.mlx import device

        device.require()
        from edgellm.backends.mlx.executable import prepare as prepare_mlx

        return prepare_mlx
    from edgellm.backends.cpu.executable import prepare

    return prepare
