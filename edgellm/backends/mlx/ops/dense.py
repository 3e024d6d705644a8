"""How MLX evaluates products, norms, rotations and elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.matrices import Matrix
from edgellm.backends.mlx.ops._table import OPS, number, op
from edgellm.graph import Node, RopeSpec
from edgellm.ops.dense import xielu_numbers


@op("embed")
def embed(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return inputs.embedded[node.weights[0], cast(str, node.attrs["source"])]


@op("inject")
def inject(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    if not inputs.given:
        return x[0]
    (mine, rows), level = inputs.given, cast(int, node.attrs["level"])
    rows = rows[:, level * node.n : (level + 1) * node.n]
    return mx.where(mine, rows, x[0]) if level == 0 else x[0] + rows


@op("rms_norm")
def rms_norm(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    groups, weight = cast(int, node.attrs["groups"]), weights.vectors[node.weights[0]] if node.weights else None
    own = weight.reshape(groups, -1) if weight is not None and node.attrs["own"] else None
    y = mx.fast.rms_norm(x[0].reshape(-1, groups, node.n // groups), weight if own is None else None, number(node, "eps"))
    return (y if own is None else y * own).reshape(-1, node.n)


@op("layer_norm")
def layer_norm(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    groups, vectors = cast(int, node.attrs["groups"]), [weights.vectors[name] for name in node.weights]
    if groups > 1:
        y = mx.fast.layer_norm(x[0].reshape(-1, groups, node.n // groups), None, None, number(node, "eps")).reshape(-1, node.n)
        y = y * vectors[0].reshape(-1) if vectors else y
        return y + vectors[1].reshape(-1) if len(vectors) == 2 else y
    weight, bias = [*vectors, None, None][:2]
    return mx.fast.layer_norm(x[0], weight, bias, number(node, "eps"))


@op("matmul")
def matmul(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    y = _product(weights, node, x[0])
    return y + x[1] if len(x) > 1 else y


def _product(weights: MlxWeights, node: Node, x: Array) -> Array:
    matrix = weights.matrices[node.weights[0]]
    y = within_f16(weights, node, matrix, x, matrix)
    return y + weights.vectors[node.weights[1]] if len(node.weights) > 1 else y


def within_f16(weights: MlxWeights, node: Node, matrix: Matrix, x: Array, product: Callable[[Array], Array]) -> Array:
    """product(x), of rows of at most 1 where something could be infinite in f16 else."""
    if not matrix.narrow or node.weights[0] in weights.bounded:
        return product(x)
    largest = mx.maximum(mx.abs(x).max(axis=-1, keepdims=True), 1e-30)
    return product(x / largest) * largest


@op("rope")
def rope(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    spec, heads = cast(RopeSpec, node.attrs["rope"]), cast(int, node.attrs["heads"])
    cos, sin = inputs.tables[spec, cast(str, node.attrs["positions"])]
    if node.rows == "R" and inputs.output_rows is not None:
        cos, sin = cos[inputs.output_rows], sin[inputs.output_rows]
    y = turned(x[0].reshape(-1, heads, node.n // heads), spec, cos[:, None], sin[:, None])
    return y.reshape(-1, node.n)


def turned(x: Array, spec: RopeSpec, cos: Array, sin: Array) -> Array:
    """x (..., head_dim) with its first n_rot dims rotated; cos and sin broadcast to (..., n_rot/2).

    Not mx.fast.rope: its angles are float32, which is wrong by a tenth of a turn at position 10 million.
    """
    n, half = spec.n_rot, spec.n_rot // 2
    if spec.style == "axial":
        quarter, plain = half // 2, replace(spec, n_rot=half, style="neox")
        parts = (slice(0, half), slice(0, quarter)), (slice(half, n), slice(quarter, half))
        return mx.concatenate([turned(x[..., dims], plain, cos[..., pairs], sin[..., pairs]) for dims, pairs in parts], axis=-1)
    if spec.style == "neox":
        a, b = x[..., :half], x[..., half:n]
        y = mx.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    else:
        pairs = x[..., :n].reshape(*x.shape[:-1], half, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        y = mx.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(*x.shape[:-1], n)
    return y if n == x.shape[-1] else mx.concatenate([y, x[..., n:]], axis=-1)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "softplus": lambda x: mx.logaddexp(x, 0.0),
    "silu": lambda x: x * mx.sigmoid(x),
    "sigmoid": mx.sigmoid,
    "hard_sigmoid": lambda x: mx.clip((x + 3.0) * (1 / 6), 0.0, 1.0),
    "gelu": lambda x: 0.5 * x * (1.0 + mx.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))),
    "gelu_erf": lambda x: 0.5 * x * (1.0 + mx.erf(x * math.sqrt(0.5))),
    "gelu_quick": lambda x: x * mx.sigmoid(1.702 * x),
    "relu": lambda x: mx.maximum(x, 0),
    "relu_squared": lambda x: mx.square(mx.maximum(x, 0)),
    "tanh": mx.tanh,
}


def _activation(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return ACTIVATIONS[node.op](x[0])


OPS |= dict.fromkeys(ACTIVATIONS, _activation)


@op("glu")
def glu(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return ACTIVATIONS[cast(str, node.attrs["act"])](x[0]) * x[1]


@op("matmul_glu")
def matmul_glu(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return ACTIVATIONS[cast(str, node.attrs["act"])](x[1]) * _product(weights, node, x[0])


@op("add")
def add(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0] + x[1]


@op("mul")
def mul(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0] * x[1]


@op("scale")
def scale(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0] * number(node, "value")


@op("add_bias")
def add_bias(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0] + weights.vectors[node.weights[0]]


@op("scaled_by")
def scaled_by(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0] * mx.tile(weights.vectors[node.weights[0]], cast(int, node.attrs["heads"]))


@op("clamp")
def clamp(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.clip(x[0], -number(node, "limit"), number(node, "limit"))


@op("at_least")
def at_least(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.maximum(x[0], number(node, "limit"))


@op("at_most")
def at_most(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.minimum(x[0], number(node, "limit"))


@op("xielu")
def xielu(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    alpha_p, alpha_n, beta, eps = xielu_numbers(node)
    low = mx.minimum(x[0], eps)
    return beta * x[0] + alpha_p * mx.square(mx.maximum(x[0], 0)) + alpha_n * (mx.expm1(low) - low)


@op("softcap")
def softcap(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return capped(x[0], number(node, "cap"))


def capped(x: Array, cap: float) -> Array:
    return cap * mx.tanh(x / cap)


@op("slice")
def take_columns(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0][:, cast(int, node.attrs["start"]) : cast(int, node.attrs["stop"])]


@op("select")
def select(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0] if inputs.output_rows is None else x[0][inputs.output_rows]


@op("head_columns")
def head_columns(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    pieces = x[0].reshape(len(x[0]), cast(int, node.attrs["heads"]), -1)
    return pieces[..., cast(int, node.attrs["start"]) : cast(int, node.attrs["stop"])].reshape(len(x[0]), -1)
