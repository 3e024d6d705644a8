"""Several rows per token that are mixed with each other (AltUp, Baykal et al. 2023), and what else Gemma 3n does to rows."""

from __future__ import annotations

import numpy as np

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, integer, number, same_length


# --- mix --------------------------------------------------------------------------------------------------------------
def mix(
    g: Builder, base: Value, x: Value, parts: int, coefficients: Value | None = None, *, offset: float = 0.0, first: int = 0
) -> Value:
    """Parts of a row with weighted sums of another row's parts added: part o is base_o + sum over k of (c_ok + offset) x_k.

    `parts`: of base; x has parts of the same length. `coefficients` (T, parts * parts of x); None: all are 1. Parts before
    `first` stay as they are.
    """
    inputs = (base, x) if coefficients is None else (base, x, coefficients)
    return g.emit("mix", inputs, g.n(base), parts=parts, offset=float(offset), first=first)


def _check_mix(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    parts, first = integer(node, "parts"), integer(node, "first", least=0)
    if node.n != inputs[0].n or node.n % parts or inputs[1].n % (node.n // parts) or first >= parts:
        yield f"cannot add parts of {inputs[1].n} to {inputs[0].n} in {parts} parts from {first} on"
    elif len(inputs) == 3 and inputs[2].n != parts * (inputs[1].n // (node.n // parts)):
        yield f"has {inputs[2].n} coefficients for {parts} parts of {node.n} and {inputs[1].n}"


def _mix(run: Run, node: Node, base: Array, x: Array, coefficients: Array | None = None) -> Array:
    parts, first = integer(node, "parts"), integer(node, "first", least=0)
    added = x.reshape(len(x), -1, node.n // parts)
    if coefficients is None:
        factors = np.ones((len(x), parts, added.shape[1]), np.float32)
    else:
        factors = coefficients.reshape(len(x), parts, -1) + np.float32(number(node, "offset"))
    factors[:, :first] = 0
    y: Array = base + (factors @ added).reshape(base.shape)
    return y


# --- rescale ----------------------------------------------------------------------------------------------------------
def rescale(g: Builder, x: Value, like: Value, groups: int, floor: float) -> Value:
    """Each of `groups` pieces of a row with the root mean square of `like`; its own mean square counts as `floor` at least."""
    return g.emit("rescale", (x, like), g.n(x), groups=groups, floor=float(floor))


def _check_rescale(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs[:1], graph)
    if node.n % integer(node, "groups"):
        yield f"cannot split {node.n} into {node.attrs['groups']} groups"


def _rescale(run: Run, node: Node, x: Array, like: Array) -> Array:
    pieces = x.reshape(len(x), integer(node, "groups"), -1)
    own = np.maximum(np.mean(np.square(pieces), axis=-1, keepdims=True), np.float32(number(node, "floor")))
    wanted = np.mean(np.square(like), axis=-1)[:, None, None]
    y: Array = pieces * np.sqrt(wanted / own)
    return y.reshape(x.shape)


# --- sparse_relu ------------------------------------------------------------------------------------------------------
def sparse_relu(g: Builder, x: Value, deviations: float) -> Value:
    """max(x - cutoff, 0), the cutoff so many standard deviations of a row above its mean."""
    return g.emit("sparse_relu", (x,), g.n(x), deviations=float(deviations))


def _sparse_relu(run: Run, node: Node, x: Array) -> Array:
    mean = x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(np.square(x - mean), axis=-1, keepdims=True))
    y: Array = np.maximum(x - (mean + deviation * np.float32(number(node, "deviations"))), np.float32(0.0))
    return y


OPS = (
    OpSpec("mix", _mix, (2, 3), {"parts", "offset", "first"}, _check_mix, by_rows=True),
    OpSpec("rescale", _rescale, (2,), {"groups", "floor"}, _check_rescale, by_rows=True),
    OpSpec("sparse_relu", _sparse_relu, attrs={"deviations"}, by_rows=True),
)
