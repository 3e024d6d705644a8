"""How MLX pools the rows of a segment. Segments are computed one by one, so that all rows of a step are one text's."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import op
from edgellm.graph import Node


@op("pool")
def pool(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    rows = cast(str, node.attrs["rows"])
    if rows == "mean":
        return mx.mean(x[0], axis=0, keepdims=True)
    return x[0][:1] if rows == "first" else x[0][-1:]


@op("softmax")
def softmax(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.softmax(x[0], axis=-1, precise=True)
