"""Mixtures of experts: which experts a token takes, their products, and the sum of what they give.

A token takes k of E experts, its slots 0..k-1, in ascending order of experts. Values between the products of experts have k parts
per row, one for each slot. Sums run over slots in that order, so that no result depends on what else is computed in a step.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, WeightUse, integer, number, of_columns, same_length, vectors
from edgellm.ops.dense import ACTIVATIONS, ONE

Gating = Literal["softmax", "sigmoid", "sparsemixer"]
NEAR = np.float32(0.02)  # SparseMixer: twice the jitter of its makers' configurations
MAX_GROUPS = 63  # of experts, of which some are chosen first: a set of them is an int64
TINY = np.float32(1e-20)  # keeps a sum of weights from being 0


# --- topk -------------------------------------------------------------------------------------------------------------
def topk(
    g: Builder,
    logits: Value,
    k: int,
    gating: Gating,
    *,
    normalise: bool,
    scale: float = 1.0,
    groups: int = 1,
    groups_used: int = 1,
    bias: str | None = None,
) -> Value:
    """Weights (T, E) of the k experts that each token takes, 0 for all others.

    Probabilities are softmax or sigmoid of the logits. `bias` (E,) counts in the selection only. Of several groups of experts
    the best `groups_used` are left: by the largest probability in them, with sigmoid by the sum of the two largest.
    sparsemixer (Liu et al. 2024, "GRIN"): of two experts, each weighs its share of a softmax over those logits that are within NEAR
    of its own, without the other one where that was chosen first.
    normalise: weights sum to 1 (softmax after the selection is the same); they are then multiplied by `scale`.
    """
    return g.emit(
        "topk",
        (logits,),
        g.n(logits),
        () if bias is None else (bias,),
        k=k,
        gating=gating,
        normalise=normalise,
        scale=scale,
        groups=groups,
        groups_used=groups_used,
    )


def _check_topk(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs, graph)
    k, groups, used = (integer(node, attr) for attr in ("k", "groups", "groups_used"))
    if node.attrs["gating"] not in ("softmax", "sigmoid", "sparsemixer"):
        yield f"has no gating {node.attrs['gating']}"
    if node.attrs["gating"] == "sparsemixer" and (k != 2 or groups > 1 or node.weights or node.attrs["normalise"]):
        yield "mixes two experts, of no groups and without a bias"
    if node.n % groups or used > groups or groups > MAX_GROUPS or not k <= node.n // groups * used:
        yield f"cannot take {k} of {node.n} experts from {used} of {groups} groups"


def _topk(run: Run, node: Node, logits: Array) -> Array:
    if node.attrs["gating"] == "sparsemixer":
        return _sparsemixer(logits) * np.float32(number(node, "scale"))
    if node.attrs["gating"] == "softmax":
        probabilities = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
    else:
        probabilities = np.reciprocal(ONE + np.exp(-logits))
    scores = probabilities + run.weight(node.weights[0]) if node.weights else probabilities
    chosen = best(np.where(_in_best_groups(node, scores), scores, np.float32(-np.inf)), integer(node, "k"))
    weights = np.take_along_axis(probabilities, chosen, axis=-1)
    if node.attrs["normalise"]:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + TINY)
    found = np.zeros_like(logits)
    np.put_along_axis(found, chosen, weights * np.float32(number(node, "scale")), axis=-1)
    return found


def _sparsemixer(logits: Array) -> Array:
    left, found = logits.copy(), np.zeros_like(logits)
    for _ in range(2):
        chosen = left.argmax(axis=-1)[:, None]
        top = np.take_along_axis(left, chosen, axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            far = (top - logits) / np.maximum(np.abs(logits), top) > NEAR
        near = np.where(far, np.float32(0.0), np.exp(left - top))
        np.put_along_axis(found, chosen, np.reciprocal(near.sum(axis=-1, keepdims=True)), axis=-1)
        np.put_along_axis(left, chosen, np.float32(-np.inf), axis=-1)
    return found


def _in_best_groups(node: Node, scores: Array) -> npt.NDArray[np.bool_]:
    groups = integer(node, "groups")
    parts = np.sort(scores.reshape(len(scores), groups, -1), axis=-1)
    totals = parts[..., -1] if node.attrs["gating"] == "softmax" else parts[..., -2:].sum(axis=-1)
    kept = np.zeros(totals.shape, np.bool_)
    np.put_along_axis(kept, best(totals, integer(node, "groups_used")), True, axis=-1)
    return np.repeat(kept, node.n // groups, axis=-1)


def best(scores: Array, k: int) -> npt.NDArray[np.int64]:
    """The columns (T, k) of the k largest of each row, ascending; of equal ones the first."""
    return np.sort(np.argsort(-scores, axis=-1, kind="stable")[:, :k], axis=-1)


# --- expert_matmul, expert_slots, expert_sum --------------------------------------------------------------------------
def expert_matmul(g: Builder, x: Value, weights: Value, name: str, k: int, n: int, *, start: int = 0, rows: int = 0) -> Value:
    """x @ W[e].T (+ bias[e]) for each of a token's k experts: (T, k * n). `weights`: what `topk` gives.

    Of a tensor (E, rows, columns) with several matrices per expert it takes rows start..start + n; `rows` is 0 where n are all.
    Products are multiplied with numbers (E,) of a tensor `name.scale` where the file has one.
    """
    factors = g.scale_of(name)
    names = (f"{name}.weight",) if factors else g.named(name)  # biases behind factors: no file has both
    y = g.emit("expert_matmul", (x, weights), k * n, names, k=k, start=start, rows=rows or n)
    return slot_scale(g, y, weights, k, factors) if factors else y


def _check_expert_matmul(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    k, start, rows = integer(node, "k"), integer(node, "start", least=0), integer(node, "rows")
    if node.n % k or start + node.n // k > rows:
        yield f"cannot take {node.n} as rows from {start} on of {k} times {rows}"


def _expert_weights(node: Node, n_experts: int, rows: int, columns: int, share: float) -> Uses:
    matrices = WeightUse(node.weights[0], (n_experts, rows, columns), "experts", share / n_experts)
    return (matrices, *vectors(node.weights[1:], n_experts, rows))


def _expert_matmul_weights(node: Node, inputs: Inputs) -> Uses:
    rows = integer(node, "rows")
    return _expert_weights(node, inputs[1].n, rows, inputs[0].n, node.n / rows)


def _expert_matmul(run: Run, node: Node, x: Array, weights: Array) -> Array:
    k, start = integer(node, "k"), integer(node, "start", least=0)
    n = node.n // k
    return _by_expert(run, node, np.repeat(x[:, None], k, axis=1), weights, slice(start, start + n)).reshape(len(x), -1)


def of_experts(node: Node) -> str | None:
    """The matrices of experts that a node multiplies with, None for other nodes."""
    return node.weights[0] if node.op in ("expert_matmul", "expert_sum") else None


def scaled_slots(node: Node) -> Value | None:
    """The products of experts that a node multiplies by numbers that belong to their matrices, None for other nodes."""
    return node.inputs[0] if node.op == "slot_scale" and node.weights else None


def adds_experts(node: Node) -> bool:
    """True if what the experts give is summed."""
    return node.op == "expert_sum"


def _check_expert_slots(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from _check_expert_matmul(node, inputs, graph)
    if inputs[0].n % integer(node, "k"):
        yield f"cannot split {inputs[0].n} among {node.attrs['k']} experts"


def _expert_slots_weights(node: Node, inputs: Inputs) -> Uses:
    rows = integer(node, "rows")
    return _expert_weights(node, inputs[1].n, rows, inputs[0].n // integer(node, "k"), node.n / rows)


def _expert_slots(run: Run, node: Node, x: Array, weights: Array) -> Array:
    """As `expert_matmul`, but x (T, k * columns) has a part of its own for each expert; of LoRA adapters."""
    k, start = integer(node, "k"), integer(node, "start", least=0)
    return _by_expert(run, node, x.reshape(len(x), k, -1), weights, slice(start, start + node.n // k)).reshape(len(x), -1)


def _by_expert(run: Run, node: Node, x: Array, weights: Array, rows: slice) -> Array:
    """x (T, k, columns), each slot by its expert's rows: (T, k, rows)."""
    matrices, chosen = run.weight(node.weights[0]), best(weights, x.shape[1])
    y = np.zeros((*x.shape[:2], len(range(*rows.indices(matrices.shape[1])))), np.float32)
    for expert in np.unique(chosen):
        here = chosen == expert
        y[here] = x[here] @ matrices[expert, rows].T
        if len(node.weights) == 2:
            y[here] += run.weight(node.weights[1])[expert, rows]
    return y


def expert_sum(g: Builder, x: Value, weights: Value, name: str, k: int, n: int, factors: Value | None = None) -> Value:
    """x (T, k * columns), each of its k parts by its expert, weighted and summed: (T, n).

    `factors` (T, E): what products are multiplied with, where that is not what `topk` gives.
    """
    return g.emit("expert_sum", (x, weights) if factors is None else (x, weights, factors), n, g.named(name), k=k)


def _check_expert_sum(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    if inputs[0].n % integer(node, "k"):
        yield f"cannot split {inputs[0].n} among {node.attrs['k']} experts"
    if inputs[-1].n != inputs[1].n:
        yield f"has {inputs[-1].n} factors for {inputs[1].n} experts"


def _expert_sum_weights(node: Node, inputs: Inputs) -> Uses:
    k = integer(node, "k")
    return _expert_weights(node, inputs[1].n, node.n, inputs[0].n // k, k)


def _expert_sum(run: Run, node: Node, x: Array, weights: Array, factors: Array | None = None) -> Array:
    k = integer(node, "k")
    y = _by_expert(run, node, x.reshape(len(x), k, -1), weights, slice(0, node.n))
    factors = weights if factors is None else factors
    total: Array = np.sum(y * np.take_along_axis(factors, best(weights, k), axis=-1)[..., None], axis=1)
    return total


# --- slot_scale -------------------------------------------------------------------------------------------------------
def slot_scale(g: Builder, x: Value, weights: Value, k: int, factors: str | None = None) -> Value:
    """x (T, k * n), each of its k parts times the weight of its expert, or times its expert's of the `factors` (E,), a tensor.
    `weights`: what `topk` gives.
    """
    return g.emit("slot_scale", (x, weights), g.n(x), () if factors is None else (factors,), k=k)


def _check_slot_scale(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs[:1], graph)
    if node.n % integer(node, "k"):
        yield f"cannot split {node.n} among {node.attrs['k']} experts"


def _of_second(node: Node, inputs: Inputs) -> Uses:
    """Weights with a number for each column of the second input."""
    return vectors(node.weights, inputs[1].n)


def _slot_scale(run: Run, node: Node, x: Array, weights: Array) -> Array:
    k = integer(node, "k")
    chosen = best(weights, k)
    factors = run.weight(node.weights[0])[chosen] if node.weights else np.take_along_axis(weights, chosen, axis=-1)
    y: Array = x.reshape(len(x), k, -1) * factors[..., None]
    return y.reshape(x.shape)


# --- glu_clamped, gated_by --------------------------------------------------------------------------------------------
def glu_clamped(g: Builder, gate: Value, up: Value, limit: float) -> Value:
    """gelu_quick(min(gate, limit)) * (up within +-limit, plus 1): gpt-oss."""
    return g.emit("glu_clamped", (gate, up), g.n(gate), limit=limit)


def _glu_clamped(run: Run, node: Node, gate: Array, up: Array) -> Array:
    limit = np.float32(number(node, "limit"))
    y: Array = np.multiply(ACTIVATIONS["gelu_quick"](np.minimum(gate, limit)), np.clip(up, -limit, limit) + ONE)
    return y


def gated_by(g: Builder, y: Value, x: Value, name: str) -> Value:
    """Rows of y times sigmoid(x . w), with w (row length of x): how much of a shared expert counts."""
    return g.emit("gated_by", (y, x), g.n(y), (f"{name}.weight",))


def _check_gated_by(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs[:1], graph)


def _gated_by(run: Run, node: Node, y: Array, x: Array) -> Array:
    gate = np.reciprocal(ONE + np.exp(-(x @ run.weight(node.weights[0]))))
    gated: Array = np.multiply(y, gate[:, None])
    return gated


OPS = (
    OpSpec(
        "topk",
        _topk,
        attrs={"k", "gating", "normalise", "scale", "groups", "groups_used"},
        check=_check_topk,
        weights=of_columns,
        weight_counts=(0, 1),
        bounded=True,
    ),
    OpSpec("expert_matmul", _expert_matmul, (2,), {"k", "start", "rows"}, _check_expert_matmul, _expert_matmul_weights, (1, 2)),
    OpSpec("expert_slots", _expert_slots, (2,), {"k", "start", "rows"}, _check_expert_slots, _expert_slots_weights),
    OpSpec("expert_sum", _expert_sum, (2, 3), {"k"}, _check_expert_sum, _expert_sum_weights, (1, 2)),
    OpSpec("slot_scale", _slot_scale, (2,), {"k"}, _check_slot_scale, _of_second, (0, 1)),
    OpSpec("glu_clamped", _glu_clamped, (2,), {"limit"}),
    OpSpec("gated_by", _gated_by, (2,), check=_check_gated_by, weights=_of_second, weight_counts=(1,)),
)
