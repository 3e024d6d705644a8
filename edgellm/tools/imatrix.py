"""Measures importance matrices: what each matrix of a model is multiplied with while it reads a text."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.arch import load_graph
from edgellm.errors import NumericError, OptionError, Unsupported
from edgellm.graph import Graph, Node
from edgellm.loading.context import check_learned
from edgellm.ops import OPS
from edgellm.ops.dense import learned_positions
from edgellm.options.tools import CHUNKS
from edgellm.reference import Reference
from edgellm.tokenizer import Tokenizer, build_tokenizer
from edgellm.tools.places import open_source
from edgellm.weights import WeightStore

Floats = npt.NDArray[np.float32]
OUTPUT = "output.weight"
SHORTEST = 16  # tokens of a window


@dataclass(frozen=True, slots=True)
class Measured:
    """Sums of squares (1, columns) and how many rows they are of (1, 1), by tensor; windows of `window` tokens."""

    sums: Mapping[str, tuple[Floats, Floats]]
    windows: int
    window: int


class Listener(Reference):
    """The reference interpreter, which adds up the squares of what matrices are multiplied with; keeps no weight in memory."""

    def __init__(self, graph: Graph, weights: WeightStore, *, with_output: bool) -> None:
        super().__init__(graph, weights)
        self.squares: dict[str, npt.NDArray[np.float64]] = {}
        self.rows: dict[str, int] = {}
        self._store, self._with_output = weights, with_output

    def weight(self, name: str) -> Floats:
        return self._store[name].array()

    def evaluate(self, node: Node, inputs: list[Floats]) -> Floats:
        for use in OPS[node.op].weights(node, [self.graph.nodes[value] for value in node.inputs]):
            if use.role == "matrix" and (use.name.startswith("blk.") or (self._with_output and use.name == OUTPUT)):
                x = inputs[0].astype(np.float64)
                self.squares[use.name] = self.squares.get(use.name, 0) + np.square(x).sum(axis=0)
                self.rows[use.name] = self.rows.get(use.name, 0) + len(x)
        return super().evaluate(node, inputs)


def measure(
    path: str | os.PathLike[str],
    text: str,
    *,
    context: int = 512,
    chunks: int | None = None,
    with_output: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Measured:
    """Read `text` in windows of `context` tokens, each with BOS in the place of its first token where the vocabulary has one.

    Runs on the NumPy reference, one dequantised matrix in memory at a time: slow, some ten tokens a second for a model of a billion
    weights. `with_output`: the output matrix too. Raises OptionError, NumericError and the FormatErrors.
    """
    if context < SHORTEST:
        raise OptionError("is too short", option="context", value=context, advice=f"give at least {SHORTEST} tokens, 512 is usual")
    CHUNKS.check(chunks)
    store = WeightStore(gguf := open_source(path))
    try:
        keys, graph = load_graph(gguf, context)
        if graph.embeds:
            raise OptionError(
                f"{gguf.path} is an embedding model, whose importance edgellm cannot measure; take a model that "
                "writes, or llama-imatrix."
            )
        if learned_positions(graph):
            check_learned(context, keys.context_length)
        _refuse_experts(graph, gguf.path)
        tokenizer = build_tokenizer(gguf.metadata, file=gguf.path)
        windows = windows_of(tokenizer, text, context, chunks)
        listener = Listener(graph, store, with_output=with_output)
        for number, tokens in enumerate(windows, start=1):
            listener.logits(tokens)
            if progress is not None:
                progress("measuring importance, window", number, len(windows))
        return Measured(_finite(listener, gguf.path), len(windows), context)
    finally:
        store.close()


def windows_of(tokenizer: Tokenizer, text: str, context: int, most: int | None) -> list[npt.NDArray[np.int64]]:
    """The tokens of a text in windows of `context`, each with BOS for its first where there is one. Raises OptionError."""
    ids = np.array(tokenizer.encode(text), np.int64)
    if len(ids) < context:
        raise OptionError(
            f"the text has {len(ids)} tokens, and a context of {context} needs as many; give a longer text or a smaller --context."
        )
    windows = [ids[first : first + context].copy() for first in range(0, len(ids) - context + 1, context)][:most]
    if tokenizer.add_bos and tokenizer.bos_id is not None:
        for window in windows:
            window[0] = tokenizer.bos_id
    return windows


def _refuse_experts(graph: Graph, file: str) -> None:
    for node in graph.nodes:
        for use in OPS[node.op].weights(node, [graph.nodes[value] for value in node.inputs]):
            if use.role == "experts":
                message = "is a matrix of experts, whose importance edgellm cannot measure yet; use llama-imatrix"
                raise Unsupported(message, file=file, field=use.name)


def _finite(listener: Listener, file: str) -> dict[str, tuple[Floats, Floats]]:
    sums = {}
    for name, squares in listener.squares.items():
        if not np.isfinite(squares).all():
            raise NumericError(f"{file}: {name}: is multiplied with NaN or Inf; the file is damaged, get another one.")
        sums[name] = squares.astype(np.float32)[None], np.array([[listener.rows[name]]], np.float32)
    return sums
