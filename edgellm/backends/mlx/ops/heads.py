"""How MLX evaluates ops that go head by head."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.matrices import Picked
from edgellm.backends.mlx.ops._table import op
from edgellm.backends.mlx.ops.dense import within_f16
from edgellm.graph import Node


@op("head_matmul")
def head_matmul(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    heads, matrix = cast(int, node.attrs["heads"]), weights.matrices[node.weights[0]]
    rows, n = x[0].reshape(len(x[0]), heads, -1), node.n // heads
    picked, own = Picked(n, 0, n), mx.broadcast_to(mx.arange(heads, dtype=mx.uint32), (len(rows), heads))
    return within_f16(weights, node, matrix, rows, lambda part: matrix.gathered(part, own, picked)).reshape(len(rows), -1)


@op("head_scale")
def head_scale(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return (x[0].reshape(*x[1].shape, -1) * x[1][..., None]).reshape(x[0].shape)


@op("join")
def join(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    heads, n = cast(int, node.attrs["heads"]), len(x[0])
    left, right = x[0].reshape(n, heads, -1), x[1].reshape(n, 1 if node.attrs["shared"] else heads, -1)
    right = mx.broadcast_to(right, (n, heads, right.shape[-1]))
    return mx.concatenate([left, right], axis=-1).reshape(n, -1)
