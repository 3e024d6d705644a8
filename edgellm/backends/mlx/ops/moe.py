"""How MLX evaluates mixtures of experts: the choice of experts, and products with the matrices of those that were chosen."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.matrices import Picked
from edgellm.backends.mlx.ops._table import number, op
from edgellm.backends.mlx.ops.dense import ACTIVATIONS, within_f16
from edgellm.graph import Node
from edgellm.ops.moe import NEAR, TINY


@op("topk")
def topk(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    attrs, softmax = node.attrs, node.attrs["gating"] == "softmax"
    if attrs["gating"] == "sparsemixer":
        return _sparsemixer(x[0]) * number(node, "scale")
    probabilities = mx.softmax(x[0], axis=-1, precise=True) if softmax else mx.sigmoid(x[0])
    scores = probabilities + weights.vectors[node.weights[0]] if node.weights else probabilities
    groups, used = cast(int, attrs["groups"]), cast(int, attrs["groups_used"])
    if used < groups:
        parts = mx.sort(scores.reshape(len(scores), groups, -1), axis=-1)
        kept = _best(parts[..., -1] if softmax else parts[..., -2:].sum(axis=-1), used)
        is_kept = mx.put_along_axis(mx.zeros((len(scores), groups)), kept, mx.array(1.0), axis=-1)
        scores = mx.where(mx.repeat(is_kept, node.n // groups, axis=-1) > 0, scores, -mx.inf)
    chosen = _best(scores, cast(int, attrs["k"]))
    found = mx.take_along_axis(probabilities, chosen, axis=-1)
    if attrs["normalise"]:
        found = found / (found.sum(axis=-1, keepdims=True) + float(TINY))
    return mx.put_along_axis(mx.zeros(x[0].shape), chosen, found * number(node, "scale"), axis=-1)


def _sparsemixer(logits: Array) -> Array:
    left, found = logits, mx.zeros(logits.shape)
    for _ in range(2):
        chosen, top = mx.argmax(left, axis=-1, keepdims=True), left.max(axis=-1, keepdims=True)
        far = (top - logits) / mx.maximum(mx.abs(logits), top) > float(NEAR)
        near = mx.where(far, 0.0, mx.exp(left - top))
        found = mx.put_along_axis(found, chosen, 1.0 / near.sum(axis=-1, keepdims=True), axis=-1)
        left = mx.put_along_axis(left, chosen, mx.array(-mx.inf), axis=-1)
    return found


def _best(scores: Array, k: int) -> Array:
    """The columns (T, k) of the k largest of each row, ascending."""
    return mx.sort(mx.argpartition(-scores, k - 1, axis=-1)[:, :k], axis=-1)


@op("expert_matmul")
def expert_matmul(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return _rows(weights, node, x[0][:, None], x[1])


@op("expert_slots")
def expert_slots(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return _rows(weights, node, x[0].reshape(len(x[0]), cast(int, node.attrs["k"]), -1), x[1])


def _rows(weights: MlxWeights, node: Node, x: Array, choice: Array) -> Array:
    """x (T, k or 1, columns) by some rows of the chosen experts: (T, k * rows)."""
    k, start, stored = (cast(int, node.attrs[name]) for name in ("k", "start", "rows"))
    picked = Picked(stored, start, start + node.n // k)
    return _products(weights, node, x, _best(choice, k), picked).reshape(len(x), -1)


def _products(weights: MlxWeights, node: Node, x: Array, experts: Array, picked: Picked) -> Array:
    """x (T, k or 1, columns) by the matrices of `experts` (T, k), with their biases: (T, k, rows)."""
    matrix = weights.matrices[node.weights[0]]
    y = within_f16(weights, node, matrix, x, lambda rows: matrix.gathered(rows, experts, picked))
    return y + weights.vectors[node.weights[1]][experts, picked.start : picked.stop] if len(node.weights) > 1 else y


@op("expert_sum")
def expert_sum(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    k = cast(int, node.attrs["k"])
    experts = _best(x[1], k)
    y = _products(weights, node, x[0].reshape(len(x[0]), k, -1), experts, Picked(node.n, 0, node.n))
    return (y * mx.take_along_axis(x[-1], experts, axis=-1)[..., None]).sum(axis=1)


@op("slot_scale")
def slot_scale(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    k = cast(int, node.attrs["k"])
    chosen = _best(x[1], k)
    factors = weights.vectors[node.weights[0]][chosen] if node.weights else mx.take_along_axis(x[1], chosen, axis=-1)
    return (x[0].reshape(len(x[0]), k, -1) * factors[..., None]).reshape(x[0].shape)


@op("glu_clamped")
def glu_clamped(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    limit = number(node, "limit")
    return ACTIVATIONS["gelu_quick"](mx.minimum(x[0], limit)) * (mx.clip(x[1], -limit, limit) + 1.0)


@op("gated_by")
def gated_by(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return x[0] * mx.sigmoid(x[1] @ weights.vectors[node.weights[0]])[:, None]
