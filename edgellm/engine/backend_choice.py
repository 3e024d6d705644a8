"""On which back end a model runs: what was asked for, or for "auto" the GPU of a Mac where the model fits it."""
from __future__ import annotations

from dataclasses import dataclass

from edgellm.backends.mlx import device
from edgellm.engine import context as contexts
from edgellm.engine import estimate
from edgellm.engine.estimate import Need
from edgellm.errors import OptionError, shown
from edgellm.formats.ggml_types import MLX
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.memory.kv_types import check_kv_type
from edgellm.memory.layout import MemoryLayout

BACKENDS = ("auto", "cpu", "mlx")
MLX_KV_TYPES = ("f16", "f32")                    # of keys and values
CHUNKS = {"cpu": contexts.CHUNK, "mlx": 1024}    # tokens of a prompt in one step; GPUs need many for their matrix units


@dataclass(frozen=True, slots=True)
class Place:
    """A back end, and why it was taken if "auto" had a choice."""

    backend: str
    note: str = ""

    def layout(self, graph: Graph, context: int, sinks: int) -> MemoryLayout:
        """The memory layout of a graph there."""
        return contexts.plan(graph, context, sinks, CHUNKS[self.backend])


def check_name(backend: str) -> None:
    """Raises OptionError for a back end that does not exist, BackendError for one that is not installed."""
    if backend not in BACKENDS:
        raise OptionError(f"backend={shown(backend)} does not exist; choose one of {', '.join(BACKENDS)}.")
    if backend == "mlx":
        device.require()


def kv_types(backend: str, asked: str | None) -> tuple[str, ...]:
    """Forms of keys and values to try, the best first. Raises OptionError for one that there is not."""
    if asked is None:
        return MLX_KV_TYPES[:1] if backend == "mlx" else (MLX_KV_TYPES[0], "q8_0")
    check_kv_type(asked)
    if backend == "mlx" and asked not in MLX_KV_TYPES:
        raise OptionError(f"kv_type={shown(asked)} is for the CPU back end; with MLX choose {' or '.join(MLX_KV_TYPES)}.")
    return (asked,)


def place(backend: str, gguf: GGUFFile, graph: Graph, context: int, sinks: int, kv_type: str) -> Place:
    """Where the model goes. Nothing of MLX is imported but on Apple Silicon or on request."""
    if backend != "auto":
        return Place(backend)
    if any(tensor.type.origin == MLX for tensor in gguf.tensors.values()):
        device.require()
        kv_types("mlx", kv_type)
        return Place("mlx", "running through MLX, which alone reads these weights")
    if not device.is_apple_silicon():
        return Place("cpu")
    if kv_type not in MLX_KV_TYPES:
        return Place("cpu", f"running on the CPU, which alone keeps keys and values in {kv_type}")
    if not device.has_metal():
        return Place("cpu", "running on the CPU: MLX is missing or finds no GPU here")
    on_gpu = Place("mlx")
    needed = need(on_gpu, gguf, graph, on_gpu.layout(graph, context, sinks), kv_type=kv_type, threads=None)
    return by_size(needed, device.working_set())


def need(place: Place, gguf: GGUFFile, graph: Graph, layout: MemoryLayout, *, kv_type: str, threads: int | None,
         threads_batch: int | None = None, parallel: int = 1) -> Need:
    """What the model takes there with so many conversations."""
    if place.backend == "mlx":
        return estimate.need_mlx(gguf, graph, layout, kv_type=kv_type, parallel=parallel)
    return estimate.need(gguf, graph, layout, kv_type=kv_type, threads=threads, threads_batch=threads_batch, parallel=parallel)


def by_size(needed: Need, limit: int) -> Place:
    """The GPU for what fits into its working set."""
    sizes = f"{needed.on_device / 1e9:.1f} GB for the model, {limit / 1e9:.1f} GB for the GPU"
    if needed.on_device <= limit:
        return Place("mlx", f"running on the GPU through MLX ({sizes})")
    return Place("cpu", f"running on the CPU: the model does not fit the GPU's working set ({sizes})")
