"""How MLX evaluates mixed parts of rows, and what else Gemma 3n does to rows."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import number, op
from edgellm.graph import Node


@op("mix")
def mix(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    parts, first = cast(int, node.attrs["parts"]), cast(int, node.attrs["first"])
    added = x[1].reshape(len(x[1]), -1, node.n // parts)
    if len(x) == 3:
        factors = x[2].reshape(len(added), parts, -1) + number(node, "offset")
    else:
        factors = mx.ones((len(added), parts, added.shape[1]))
    if first:
        factors = factors * (mx.arange(parts) >= first)[:, None]
    return x[0] + (factors[..., None] * added[:, None]).sum(axis=2).reshape(x[0].shape)


@op("rescale")
def rescale(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    pieces = x[0].reshape(len(x[0]), cast(int, node.attrs["groups"]), -1)
    own = mx.maximum(mx.square(pieces).mean(axis=-1, keepdims=True), number(node, "floor"))
    return (pieces * mx.sqrt(mx.square(x[1]).mean(axis=-1)[:, None, None] / own)).reshape(x[0].shape)


@op("sparse_relu")
def sparse_relu(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    mean = x[0].mean(axis=-1, keepdims=True)
    deviation = mx.sqrt(mx.square(x[0] - mean).mean(axis=-1, keepdims=True))
    return mx.maximum(x[0] - (mean + deviation * number(node, "deviations")), 0)
