"""RMS norm and layer norm."""

from __future__ import annotations

from typing import Literal

import numpy as np

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, integer, number, same_length, vectors


def rms_norm(g: Builder, x: Value, name: str | None, eps: float, groups: int = 1, *, own: bool | Literal["one"] = False) -> Value:
    """Each of `groups` pieces of a row divided by its root mean square, times weight (n/groups,); None: no weight.

    `own`: each piece has a weight of its own (groups, n/groups), or a single number (groups, 1).
    """
    weights = () if name is None else (g.norm_weight(name),)
    return g.emit("rms_norm", (x,), g.n(x), weights, eps=eps, groups=groups, own=own)


def _check_norm(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs, graph)
    if node.n % integer(node, "groups"):
        yield f"cannot split {node.n} into {node.attrs['groups']} groups"


def _rms_norm_weights(node: Node, inputs: Inputs) -> Uses:
    groups = integer(node, "groups")
    one = 1 if node.attrs["own"] == "one" else node.n // groups
    shape = (groups, one) if node.attrs["own"] else (one,)
    return vectors(node.weights, *shape)


def _rms_norm(run: Run, node: Node, x: Array) -> Array:
    pieces = x.reshape(len(x), integer(node, "groups"), -1)
    mean_square = np.mean(np.square(pieces), axis=-1, keepdims=True)
    normal = pieces / np.sqrt(mean_square + np.float32(number(node, "eps")))
    y: Array = normal * run.weight(node.weights[0]) if node.weights else normal
    return y.reshape(x.shape)


def layer_norm(g: Builder, x: Value, name: str | None, eps: float, groups: int = 1, *, flat: bool = False) -> Value:
    """Rows with mean 0 and variance 1, times weight (n,) plus bias (n,) where there is one; None: no weight.

    `groups`: pieces of a row that are normalised each for itself, with a weight and a bias (groups, n/groups); `flat`: (n,).
    """
    return g.emit("layer_norm", (x,), g.n(x), () if name is None else g.named(name), eps=eps, groups=groups, flat=flat)


def _layer_norm_weights(node: Node, inputs: Inputs) -> Uses:
    groups = integer(node, "groups")
    shape = (node.n,) if groups == 1 or node.attrs["flat"] else (groups, node.n // groups)
    return vectors(node.weights, *shape)


def _layer_norm(run: Run, node: Node, x: Array) -> Array:
    pieces = x.reshape(len(x), integer(node, "groups"), -1)
    centred = pieces - np.mean(pieces, axis=-1, keepdims=True)
    variance = np.mean(np.square(centred), axis=-1, keepdims=True)
    y: Array = (centred / np.sqrt(variance + np.float32(number(node, "eps")))).reshape(x.shape)
    y = y * run.weight(node.weights[0]).reshape(-1) if node.weights else y
    return y + run.weight(node.weights[1]).reshape(-1) if len(node.weights) == 2 else y


OPS = (
    OpSpec(
        "rms_norm",
        _rms_norm,
        attrs={"eps", "groups", "own"},
        check=_check_norm,
        weights=_rms_norm_weights,
        weight_counts=(0, 1),
        bounded=True,
    ),
    OpSpec(
        "layer_norm",
        _layer_norm,
        attrs={"eps", "groups", "flat"},
        check=_check_norm,
        weights=_layer_norm_weights,
        weight_counts=(0, 1, 2),
        bounded=True,
    ),
)
