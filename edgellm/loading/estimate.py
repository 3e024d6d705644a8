"""The memory that a model needs, from its header: a model that cannot fit is refused before anything is allocated."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from edgellm.backends.base import Backend, BackendOptions
from edgellm.catalogue.machine import Memory, memory
from edgellm.errors import NotEnoughMemory, OptionValue
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.spec import uses

BASE_BYTES = (50 if sys.platform == "linux" else 95) << 20  # Python, NumPy, kernels; LLVM, where its pages stay
TOKENIZER_BYTES = 410  # per token, of vocabularies of 32,000 to 152,000
START_BYTES, START_TOKEN_BYTES = 86 << 20, 60  # while a model is loaded, before its weights are read
SMALLEST_CONTEXT = 256  # tokens: a shorter one does not help
AMPLE_WORK = 512 << 20  # more than work buffers and the rest take, of one conversation


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a model holds when its context is full: weights that each token reads, keys and values of all conversations, work
    buffers, the rest; the image encoder beside it."""

    weights: int
    kv: int
    work: int
    base: int
    projector: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work + self.base + self.projector


def need(
    backend: Backend, gguf: GGUFFile, graph: Graph, layout: MemoryLayout, options: BackendOptions, *, copied: bool = False
) -> Need:
    """The memory for running `graph`, optimised, on a back end. `copied`: the file is read into memory, all of it."""
    there = backend.need(graph, gguf, layout, options)
    base = base_bytes(gguf, 0 if backend.copies_weights else there.total)
    if copied:
        return Need(0, there.kv, there.work + gguf.nbytes, base)
    return Need(there.weights, there.kv, there.work, base)


def is_ample(gguf: GGUFFile, kv: int, free: Memory | None = None, *, copied: bool = False) -> bool:
    """True if a file, mapped or `copied`, and `kv` bytes of keys and values take so little of the free memory that there is no need
    to plan for an exact figure: half of it at most, with ample work buffers.
    """
    free = free or memory()
    return 2 * (gguf.nbytes + kv + AMPLE_WORK) <= min(free.usable, free.mappable + (0 if copied else gguf.nbytes))


def base_bytes(gguf: GGUFFile, others: int) -> int:
    """Python and its libraries, and the tokenizer; for a small model, what loading takes beyond the `others` that come later."""
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if tokens is not None and hasattr(tokens, "__len__") else 0
    return max(BASE_BYTES + TOKENIZER_BYTES * vocabulary, START_BYTES + START_TOKEN_BYTES * vocabulary - others)


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
        way: tuple[object, ...] = ("take ", OptionValue("context", shorter), " or less, or close other programs; ")
    else:
        way = ("take a smaller model or type (edgellm fit shows which), or close other programs; ",)
    raise NotEnoughMemory(
        f"{Path(path).name} needs {needed.total / 1e9:.2f} GB with a context of {context} tokens and "
        f"{have / 1e9:.2f} GB can be used; ",
        *way,
        OptionValue("force", True),
        " loads it anyway",
    )
