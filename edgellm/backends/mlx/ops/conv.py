"""Convolutions along a conversation."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import op
from edgellm.graph import Node


@op("causal_conv")
def causal_conv(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    state, size = cast(int, node.attrs["state"]), cast(int, node.attrs["size"])
    rows = mx.concatenate([inputs.before(state), x[0].astype(mx.float32)])
    taps, n = weights.vectors[node.weights[0]].reshape(node.n, -1), len(x[0])
    y = sum(taps[:, j] * rows[j : j + n] for j in range(size))
    inputs.keep(state, [rows[row + 1 : row + size] for row in inputs.shape.kept])
    return y + weights.vectors[node.weights[1]] if len(node.weights) == 2 else y
