"""Kimi Delta Attention (Kimi Team 2025, "Kimi Linear"): a gated delta rule each of whose key dims decays by itself."""

from __future__ import annotations

import numpy as np

from edgellm.graph import Builder, Graph, Node, RecurrentSpec, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, integer, number, same_length, vectors
from edgellm.ops.dense import ONE
from edgellm.ops.scan import check_state, delta_rule, softplus


# --- decays -----------------------------------------------------------------------------------------------------------
def decays(g: Builder, x: Value, name: str, heads: int) -> Value:
    """exp(A * softplus(x + dt)) (T, n), with dt `name.ssm_dt.bias` (n,), and A `name.ssm_a` (negative) of each head."""
    return g.emit("decays", (x,), g.n(x), (f"{name}.ssm_a", f"{name}.ssm_dt.bias"), heads=heads)


def _check_decays(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs, graph)
    if node.n % integer(node, "heads"):
        yield f"cannot split {node.n} into {node.attrs['heads']} heads"


def _decays_weights(node: Node, inputs: Inputs) -> Uses:
    rates, steps = node.weights
    return (*vectors([rates], integer(node, "heads"), 1), *vectors([steps], node.n))


def _decays(run: Run, node: Node, x: Array) -> Array:
    heads = integer(node, "heads")
    rates, steps = (run.weight(name) for name in node.weights)
    y: Array = np.exp(np.repeat(rates.reshape(heads), node.n // heads) * softplus(x + steps))
    return y


# --- kda --------------------------------------------------------------------------------------------------------------
def kda(g: Builder, q: Value, k: Value, v: Value, decay: Value, beta: Value, *, heads: int, eps: float) -> Value:
    """By heads, (T, n) as q, k, v and `decay`: S (d, d), zeros at first, has a row for each dim of a key.

    S *= decay; S += k (sigmoid(beta) * (v - k S)); y = q S / sqrt(d). Queries and keys are divided by their lengths here, to whose
    squares `eps` is added; beta (T, heads).
    """
    dim = g.n(q) // heads
    state = g.state(RecurrentSpec((heads, dim, dim)))
    return g.emit("kda", (q, k, v, decay, beta), g.n(q), state=state, heads=heads, eps=eps)


def _check_kda(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    heads = integer(node, "heads")
    if node.n % (8 * heads) or [x.n for x in inputs] != [node.n] * 4 + [heads]:
        yield f"cannot give {node.n} of {heads} heads from inputs of {[x.n for x in inputs]}"
    yield from check_state(node, graph, (heads, node.n // heads, node.n // heads))


def _kda(run: Run, node: Node, q: Array, k: Array, v: Array, decay: Array, beta: Array) -> Array:
    n, heads, eps = len(q), integer(node, "heads"), np.float32(number(node, "eps"))
    q, k, v, decay = (x.reshape(n, heads, -1) for x in (q, k, v, decay))
    q, k = (x / np.sqrt(np.sum(np.square(x), axis=-1, keepdims=True) + eps) for x in (q, k))
    return delta_rule(q * np.float32(q.shape[-1] ** -0.5), k, v, decay, ONE / (ONE + np.exp(-beta)))


OPS = (
    OpSpec("decays", _decays, attrs={"heads"}, check=_check_decays, weights=_decays_weights, weight_counts=(2,)),
    OpSpec("kda", _kda, (5,), {"state", "heads", "eps"}, _check_kda, effect="update"),
)
