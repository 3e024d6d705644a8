"""Pooling: one row for each segment, the vector of a text or the input of a classifier, and the probabilities of its labels."""

from __future__ import annotations

import numpy as np

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, same_length

# Of `<architecture>.pooling_type` by number, as llama.cpp's enum llama_pooling_type has them; 0 is none.
POOLINGS = ("mean", "cls", "last", "rank")
ROWS = ("mean", "first", "last")


def pool(g: Builder, x: Value, rows: str) -> Value:
    """Of each segment the mean of its rows, its first or its last row: (S, n)."""
    return g.emit("pool", (x,), g.n(x), row_kind="S", rows=rows)


def _check(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs, graph)
    if node.attrs["rows"] not in ROWS:
        yield f"cannot take {node.attrs['rows']} rows"
    if inputs[0].rows != "T":
        yield "pools the rows of tokens"


def _pool(run: Run, node: Node, x: Array) -> Array:
    """The sequence is one segment."""
    if node.attrs["rows"] == "mean":
        y: Array = np.mean(x, axis=0, keepdims=True)
        return y
    return x[:1] if node.attrs["rows"] == "first" else x[-1:]


def softmax(g: Builder, x: Value) -> Value:
    """Probabilities of a row's labels."""
    return g.emit("softmax", (x,), g.n(x))


def _softmax(run: Run, node: Node, x: Array) -> Array:
    weights = np.exp(x - np.max(x, axis=-1, keepdims=True))
    y: Array = weights / np.sum(weights, axis=-1, keepdims=True)
    return y


OPS = (OpSpec("pool", _pool, attrs={"rows"}, check=_check, rows="S"), OpSpec("softmax", _softmax))
