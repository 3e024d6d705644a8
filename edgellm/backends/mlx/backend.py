"""MLX as a back end: whether this machine has a GPU for it, and what a model needs there."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from edgellm.backends.base import BackendNeed, BackendOptions, Executable, Finding, Progress
from edgellm.backends.mlx import device
from edgellm.errors import BackendError, OptionValue
from edgellm.formats.ggml_types import GGMLType
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.memory.kv_types import BLOCK, QUANTISED
from edgellm.memory.layout import MemoryLayout
from edgellm.weights import WeightStore

WORK_ROWS = 6  # rows of the widest value that MLX holds at a time, per token of a step


class MlxBackend:
    """Apple's array library: GPUs of Macs; its CPU build elsewhere serves tests."""

    name = "mlx"
    chunk = 1024  # GPUs need many tokens for their matrix units
    kv_tried: tuple[str, ...] = ("f16",)
    copies_weights = True

    def require(self) -> None:
        device.require()

    def reads(self, kind: GGMLType) -> bool:
        return True

    def need(self, graph: Graph, header: GGUFFile, layout: MemoryLayout, options: BackendOptions) -> BackendNeed:
        """Weights are copied: all of them count but most looked-up tables. Raises Unsupported, BackendError, as `prepare` would."""
        from edgellm.backends.mlx import groups
        from edgellm.backends.mlx.octets import DEFINITIONS
        from edgellm.memory.sizes import kv_bytes
        from edgellm.spec import vectors

        layout = _by_layer(layout)
        held = groups.held(graph, header.tensors)
        for name in sorted(held):
            groups.check_type(header.tensors[name].type, header.path, name)
        check_kv_type(layout, options.kv_type)
        sizes = Counter[str]()
        for name, nbytes in held.items():
            sizes[header.tensors[name].type.name] += nbytes
        copied, (most, _) = sizes.total(), sizes.most_common(1)[0]
        copied += sum(4 * math.prod(shape) for shape in vectors(graph).values())
        widest = max(node.n for node in graph.nodes if node.rows == "T")
        logits = min(layout.chunk, device.MAX_OUTPUTS) * max(graph.nodes[value].n for value in graph.outputs.values())
        work = 4 * (WORK_ROWS * layout.chunk * widest + logits) + device.CACHE_BYTES
        return BackendNeed(copied, options.parallel * kv_bytes(layout, options.kv_type), work, most if most in DEFINITIONS else "")

    def start(self) -> None:
        """MLX starts by itself."""

    def prepare(
        self, graph: Graph, weights: WeightStore, layout: MemoryLayout, options: BackendOptions, progress: Progress | None = None
    ) -> Executable:
        device.require()
        check_kv_type(layout, options.kv_type)
        from edgellm.backends.mlx.executable import prepare

        return prepare(graph, weights, _by_layer(layout), kv_type=options.kv_type, progress=progress)

    def looks(self) -> Mapping[str, Callable[[], Finding]]:
        return {"MLX": _finding}

    def belongs_here(self) -> bool:
        return device.is_apple_silicon()

    def is_there(self) -> bool:
        return device.has_metal()

    def capacity(self) -> int:
        return device.working_set()


def check_kv_type(layout: MemoryLayout, kv_type: str) -> None:
    """Raises BackendError for keys and values that cannot be kept in this type."""
    if kv_type in QUANTISED and any(spec.v_is_k_prefix and spec.dim_v % BLOCK for _, spec, _ in layout.kv):
        raise BackendError(
            OptionValue("kv_type", kv_type),
            f" rotates {BLOCK} numbers together, and values within this model's keys do not come in such pieces; "
            "choose f16 or f32.",
        )


def _by_layer(layout: MemoryLayout) -> MemoryLayout:
    """The same where each layer has memory of its own, for documents as well."""
    return replace(layout, documents=False)


def _finding() -> Finding:
    apple = device.is_apple_silicon()
    if importlib.util.find_spec("mlx") is None:
        return (
            Finding("MLX", "missing", "install edgellm again, with its dependencies")
            if apple
            else Finding("MLX", "for Apple Silicon only; models run on the processor here")
        )
    try:
        device.require()
    except BackendError as error:
        return Finding("MLX", "cannot be loaded", str(error) if apple else "")
    if apple and not device.has_metal():
        return Finding("MLX", "finds no GPU", "update macOS; models run on the processor until then")
    return Finding("MLX", device.describe())
