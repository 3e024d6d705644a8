"""Rows that have a piece for each head: products with a matrix for each, factors of each, and pieces of two rows side by side."""

from __future__ import annotations

import numpy as np

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, WeightUse, integer, same_length


# --- head_matmul ------------------------------------------------------------------------------------------------------
def head_matmul(g: Builder, x: Value, name: str, heads: int, n: int) -> Value:
    """Each of the `heads` equal pieces of a row by its own matrix: x_h @ W_h.T, with W (heads, n, columns): (T, heads * n)."""
    return g.emit("head_matmul", (x,), heads * n, (f"{name}.weight",), heads=heads)


def _check_head_matmul(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    heads = integer(node, "heads")
    if node.n % heads or inputs[0].n % heads:
        yield f"cannot split {inputs[0].n} and {node.n} into {heads} heads"


def _head_matmul_weights(node: Node, inputs: Inputs) -> Uses:
    heads = integer(node, "heads")
    return (WeightUse(node.weights[0], (heads, node.n // heads, inputs[0].n // heads), "heads"),)


def _head_matmul(run: Run, node: Node, x: Array) -> Array:
    pieces = x.reshape(len(x), integer(node, "heads"), -1)
    y: Array = np.einsum("thk,hnk->thn", pieces, run.weight(node.weights[0]), optimize=True)
    return y.reshape(len(x), -1)


# --- join -------------------------------------------------------------------------------------------------------------
def join(g: Builder, a: Value, b: Value, heads: int, *, shared: bool = False) -> Value:
    """Every head's piece of a, then its piece of b; `shared`: all of b is the piece of each head."""
    return g.emit("join", (a, b), g.n(a) + g.n(b) * (heads if shared else 1), heads=heads, shared=shared)


def _check_join(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    heads, (a, b) = integer(node, "heads"), inputs
    total = a.n + b.n * (heads if node.attrs["shared"] else 1)
    if a.n % heads or total % heads or node.n != total:
        yield f"cannot give {node.n} from {a.n} and {b.n} of {heads} heads"


def _join(run: Run, node: Node, a: Array, b: Array) -> Array:
    heads = integer(node, "heads")
    left, right = a.reshape(len(a), heads, -1), b.reshape(len(b), 1 if node.attrs["shared"] else heads, -1)
    right = np.broadcast_to(right, (len(b), heads, right.shape[-1]))
    return np.concatenate([left, right], axis=-1).reshape(len(a), -1)


# --- head_scale -------------------------------------------------------------------------------------------------------
def head_scale(g: Builder, x: Value, factors: Value) -> Value:
    """Each head's piece of x (T, heads * n) times its factor (T, heads)."""
    return g.emit("head_scale", (x, factors), g.n(x))


def _check_head_scale(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs[:1], graph)
    if node.n % inputs[1].n:
        yield f"cannot split {node.n} into {inputs[1].n} heads"


def _head_scale(run: Run, node: Node, x: Array, factors: Array) -> Array:
    y: Array = x.reshape(*factors.shape, -1) * factors[..., None]
    return y.reshape(x.shape)


OPS = (
    OpSpec(
        "head_matmul", _head_matmul, attrs={"heads"}, check=_check_head_matmul, weights=_head_matmul_weights, weight_counts=(1,)
    ),
    OpSpec("head_scale", _head_scale, (2,), check=_check_head_scale),
    OpSpec("join", _join, (2,), {"heads", "shared"}, _check_join),
)
