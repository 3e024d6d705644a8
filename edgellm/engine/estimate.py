"""What a model needs in memory, from its header: known before anything is allocated, and refused where it cannot fit."""
from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from edgellm.backends.cpu.executable import build_plan
from edgellm.backends.mlx import groups
from edgellm.backends.mlx.device import CACHE_BYTES, MAX_OUTPUTS
from edgellm.catalogue.machine import Memory, memory
from edgellm.engine import context as contexts
from edgellm.engine.synthetic_weights import SyntheticWeights
from edgellm.errors import NotEnoughMemory
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.spec import uses, vectors

BASE_BYTES = (50 if sys.platform == "linux" else 95) << 20       # Python, NumPy, kernels; LLVM, where its pages stay
TOKENIZER_BYTES = 410                            # per token, of vocabularies of 32,000 to 152,000
START_BYTES, START_TOKEN_BYTES = 90 << 20, 850   # while a model is loaded, before its weights are read
SMALLEST_CONTEXT = 256                           # tokens: a shorter one is no way out
WORK_ROWS = 6                                    # rows of the widest value that MLX holds at a time, per token of a step
LOOKUP_BYTES = 64 << 10                          # a row that is looked up brings the 16 pages around it into memory


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a model holds when its context is full: weights that each token reads, keys and values of all conversations, work
    buffers, the rest."""

    weights: int
    kv: int
    work: int
    base: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work + self.base

    @property
    def allocated(self) -> int:
        """The part that is not the model's file."""
        return self.kv + self.work + self.base

    @property
    def on_device(self) -> int:
        """The part that a GPU holds."""
        return self.weights + self.kv + self.work


def need(gguf: GGUFFile, graph: Graph, layout: MemoryLayout, *, kv_type: str, threads: int | None,
         threads_batch: int | None = None, parallel: int = 1) -> Need:
    """What running `graph`, optimised, takes with so many conversations; planned as the CPU back end plans it."""
    plan = build_plan(graph, SyntheticWeights(gguf), layout, kv_type=kv_type, threads=threads, threads_batch=threads_batch)
    work = plan.arena.nbytes + sum(array.nbytes for array in plan.kept)
    weights, kv = resident_weights(gguf, graph, layout.context), parallel * contexts.kv_bytes(layout, kv_type)
    return Need(weights, kv, work, base_bytes(gguf, weights + kv + work))


def need_mlx(gguf: GGUFFile, graph: Graph, layout: MemoryLayout, *, kv_type: str, parallel: int = 1) -> Need:
    """The same for the MLX back end, which copies the weights: all of it counts as allocated but looked-up tables."""
    read = {use.name for use in uses(graph) if use.role == "matrix"}
    copied = sum(groups.mlx_bytes(gguf.tensors[name].type, math.prod(gguf.tensors[name].shape)) for name in read)
    copied += sum(4 * math.prod(shape) for shape in vectors(graph).values())
    widest = max(node.n for node in graph.nodes if node.rows == "T")
    logits = min(layout.chunk, MAX_OUTPUTS) * graph.nodes[graph.outputs["logits"]].n
    work = 4 * (WORK_ROWS * layout.chunk * widest + logits) + CACHE_BYTES
    return Need(copied, parallel * contexts.kv_bytes(layout, kv_type), work, base_bytes(gguf, 0))


def base_bytes(gguf: GGUFFile, others: int) -> int:
    """Python and its libraries, and the tokenizer; for a small model, what loading takes beyond the `others` that come later."""
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if tokens is not None and hasattr(tokens, "__len__") else 0
    return max(BASE_BYTES + TOKENIZER_BYTES * vocabulary, START_BYTES + START_TOKEN_BYTES * vocabulary - others)


def resident_weights(gguf: GGUFFile, graph: Graph, context: int) -> int:
    """Bytes of the file that stay in memory: all but tables of which only single rows are looked up."""
    read = {use.name for use in uses(graph) if use.role != "table"}
    looked_up = {use.name for use in uses(graph) if use.role == "table"} - read
    return (sum(gguf.tensors[name].nbytes for name in read if name in gguf.tensors)
            + sum(min(gguf.tensors[name].nbytes, context * LOOKUP_BYTES) for name in looked_up))


def token_bytes(gguf: GGUFFile, graph: Graph) -> int:
    """Bytes of weights that computing one token reads; rows that are looked up count for nothing."""
    return sum(int(gguf.tensors[use.name].nbytes * use.active) for use in uses(graph) if use.name in gguf.tensors)


def check(needed: Need, context: int, path: str, *, free: Memory | None = None) -> None:
    """Raises NotEnoughMemory where the model would not fit, with what it needs, what there is, and two ways out."""
    free = free or memory()
    have = min(free.usable, free.mappable + needed.weights)
    if needed.total <= have:
        return
    spare = have - (needed.total - needed.kv)
    shorter = int(context * spare / needed.kv * 0.95) if needed.kv else 0
    if shorter >= SMALLEST_CONTEXT:
        way = f"take a context of {shorter} tokens or fewer (--context), or close other programs"
    else:
        way = "take a smaller model or type (edgellm fit shows which), or close other programs"
    raise NotEnoughMemory(f"{Path(path).name} needs {needed.total / 1e9:.2f} GB with a context of {context} tokens and "
                          f"{have / 1e9:.2f} GB can be used; {way}; --force (force=True) loads it anyway")
