"""Kimi Delta Attention, token by token."""

from __future__ import annotations

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import number, op
from edgellm.backends.mlx.ops.scan import delta_rule, integer, softplus
from edgellm.graph import Node


@op("decays")
def decays(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    heads = integer(node, "heads")
    rates, steps = (weights.vectors[name] for name in node.weights)
    return mx.exp(mx.repeat(rates.reshape(heads), node.n // heads) * softplus(x[0].astype(mx.float32) + steps))


@op("kda")
def kda(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    heads, n = integer(node, "heads"), len(x[0])
    dim = node.n // heads
    q, k, v, decay = (part.astype(mx.float32).reshape(n, heads, dim) for part in x[:4])
    q, k = (part * mx.rsqrt(mx.sum(mx.square(part), axis=-1, keepdims=True) + number(node, "eps")) for part in (q, k))
    return delta_rule(inputs, node, q * dim**-0.5, k, v, decay, mx.sigmoid(x[4].astype(mx.float32)))
