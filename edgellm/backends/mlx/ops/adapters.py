"""Low-rank products of adapters, in mx ops."""

from __future__ import annotations

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import op
from edgellm.graph import Node


@op("low_rank_add")
def low_rank_add(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    low, base = x
    return base + low @ weights.matrices[node.weights[0]].arrays[0].astype(mx.float32)
