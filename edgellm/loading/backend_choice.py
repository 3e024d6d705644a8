"""On which back end a model runs: what was asked for, or for "auto" an accelerator where the model fits it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgellm.backends import ACCELERATOR, BACKENDS, find
from edgellm.backends.base import Backend, BackendNeed, BackendOptions
from edgellm.errors import BackendError, Unsupported
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.loading import context as contexts
from edgellm.memory.kv_types import check_kv_type


@dataclass(frozen=True, slots=True)
class Place:
    """A back end, and why "auto" chose it."""

    backend: Backend
    note: str = ""
    crowded: bool = False  # an accelerator is there, and the model does not fit it


def check_name(backend: str) -> None:
    """Raises OptionError for a back end that does not exist, BackendError for one that is not installed."""
    if not isinstance(backend, str) or backend != "auto":
        find(backend)


def kv_types(backend: str, asked: str | None) -> tuple[str, ...]:
    """Forms of keys and values to try, the best first. Raises OptionError for one that there is not."""
    if asked is None:
        return BACKENDS["cpu" if backend == "auto" else backend].kv_tried
    check_kv_type(asked)
    return (asked,)


def place(
    backend: str, gguf: GGUFFile, graph: Graph, context: int, sinks: int, kv_type: str, beside: Callable[[Backend], int]
) -> Place:
    """The back end for a model. Nothing of an accelerator is imported but where it belongs, or on request.

    `beside`: bytes of what runs beside the model on a back end, such as an image encoder.
    """
    if backend != "auto":
        return Place(find(backend))
    cpu = find("cpu")
    if reader(gguf) is ACCELERATOR:
        return Place(ACCELERATOR, "running through MLX, which alone reads these weights")
    if not ACCELERATOR.belongs_here():
        return Place(cpu)
    if not ACCELERATOR.is_there():
        return Place(cpu, "running on the CPU: MLX is missing or finds no GPU here")
    layout = contexts.plan(graph, context, sinks, ACCELERATOR)
    try:
        needed = ACCELERATOR.need(graph, gguf, layout, BackendOptions(kv_type))
        needed = replace(needed, work=needed.work + beside(ACCELERATOR))
    except (Unsupported, BackendError) as error:
        reason = str(error).removeprefix(f"{gguf.path}: ").rpartition(";")[0]  # without what to do
        return Place(cpu, f"running on the CPU: MLX cannot run this model ({reason})")
    if needed.slow:
        return Place(cpu, f"running on the CPU: most weights are {needed.slow}, for which MLX has no fast products")
    return by_size(needed, ACCELERATOR.capacity())


def reader(gguf: GGUFFile) -> Backend:
    """The CPU, or the accelerator for weights that it alone reads. Raises BackendError where it is not installed."""
    cpu = find("cpu")
    if all(cpu.reads(tensor.type) for tensor in gguf.tensors.values()):
        return cpu
    ACCELERATOR.require()
    return ACCELERATOR


def by_size(needed: BackendNeed, limit: int) -> Place:
    """The accelerator for what fits it."""
    sizes = f"{needed.total / 1e9:.1f} GB for the model, {limit / 1e9:.1f} GB for the GPU"
    if needed.total <= limit:
        return Place(ACCELERATOR, f"running on the GPU through MLX ({sizes})")
    return Place(find("cpu"), f"running on the CPU: the model does not fit the GPU's working set ({sizes})", crowded=True)
