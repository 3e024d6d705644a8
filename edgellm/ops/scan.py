"""Recurrent layers: a state that every token changes, and reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgellm.graph import Builder, Graph, Node, RecurrentSpec, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, integer, number, vectors
from edgellm.ops.dense import ONE


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    y: Array = np.maximum(x, np.float32(0)) + np.log1p(np.exp(-np.abs(x)))
    return y


def check_state(node: Node, graph: Graph, shape: tuple[int, ...], factors: int = 0) -> Iterator[str]:
    state = integer(node, "state", least=0)
    if node.rows != "T":
        yield "updates its state with every token, so it needs all rows"
    if state >= len(graph.states) or graph.states[state] != RecurrentSpec(shape, factors=factors):
        yield f"names state {state}, which is not of shape {shape}"


# --- delta_net --------------------------------------------------------------------------------------------------------
def delta_net(
    g: Builder,
    qkv: Value,
    alpha: Value,
    beta: Value,
    name: str,
    *,
    k_heads: int,
    v_heads: int,
    dim_k: int,
    dim_v: int,
    grouped: bool,
    eps: float,
) -> Value:
    """The gated delta rule (Yang et al. 2024, "Gated Delta Networks"), by heads of v: (T, v_heads * dim_v).

    qkv (T, 2 * k_heads * dim_k + v_heads * dim_v): queries and keys, which are divided by their lengths here, then values. With
    S (dim_k, dim_v), zeros at first: S *= exp(A * softplus(alpha + dt)); S += k (sigmoid(beta) * (v - k S)); y = q S / sqrt(dim_k).
    `grouped`: heads of v that follow each other have the same q and k; otherwise head h has those of h mod k_heads. Weights
    (v_heads,): A `name.ssm_a` (negative) and dt `name.ssm_dt.bias`. `eps` is added to squared lengths.
    """
    state = g.state(RecurrentSpec((v_heads, dim_k, dim_v), factors=v_heads * dim_v))
    return g.emit(
        "delta_net",
        (qkv, alpha, beta),
        v_heads * dim_v,
        (f"{name}.ssm_a", f"{name}.ssm_dt.bias"),
        state=state,
        k_heads=k_heads,
        v_heads=v_heads,
        dim_k=dim_k,
        dim_v=dim_v,
        grouped=grouped,
        eps=eps,
    )


def _check_delta_net(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    k_heads, v_heads = integer(node, "k_heads"), integer(node, "v_heads")
    dim_k, dim_v = integer(node, "dim_k"), integer(node, "dim_v")
    if v_heads % k_heads:
        yield f"cannot share {k_heads} key heads among {v_heads}"
    needs = [2 * k_heads * dim_k + v_heads * dim_v, v_heads, v_heads]
    if [x.n for x in inputs] != needs or node.n != v_heads * dim_v:
        yield f"gives {node.n} from inputs of {[x.n for x in inputs]}, not {v_heads * dim_v} from {needs}"
    yield from check_state(node, graph, (v_heads, dim_k, dim_v), v_heads * dim_v)


def _delta_net_weights(node: Node, inputs: Inputs) -> Uses:
    return vectors(node.weights, integer(node, "v_heads"))


def _delta_net(run: Run, node: Node, qkv: Array, alpha: Array, beta: Array) -> Array:
    k_heads, v_heads, dim_k = integer(node, "k_heads"), integer(node, "v_heads"), integer(node, "dim_k")
    n, width, eps = len(qkv), k_heads * dim_k, np.float32(number(node, "eps"))
    q, k = (part.reshape(n, k_heads, dim_k) for part in (qkv[:, :width], qkv[:, width : 2 * width]))
    q, k = (part / np.sqrt(np.sum(np.square(part), axis=-1, keepdims=True) + eps) for part in (q, k))
    spread = np.repeat if node.attrs["grouped"] else lambda x, times, axis: np.concatenate([x] * times, axis)
    q, k = (spread(part, v_heads // k_heads, axis=1) for part in (q * np.float32(dim_k**-0.5), k))
    v = qkv[:, 2 * width :].reshape(n, v_heads, -1)
    decay = np.exp(run.weight(node.weights[0]) * softplus(alpha + run.weight(node.weights[1])))
    gate = ONE / (ONE + np.exp(-beta))
    return delta_rule(q, k, v, decay[:, :, None], gate)


def delta_rule(q: Array, k: Array, v: Array, decay: Array, gate: Array) -> Array:
    """The gated delta rule, token by token: q, k (n, heads, dim_k), v (n, heads, dim_v), decay (n, heads, dim_k or 1), gate
    (n, heads) -> (n, heads * dim_v).
    """
    state, out = np.zeros((*k.shape[1:], v.shape[-1]), np.float32), np.empty_like(v)
    for t in range(len(q)):
        state = state * decay[t, :, :, None]
        change = (v[t] - np.einsum("hk,hkv->hv", k[t], state)) * gate[t, :, None]
        state = state + k[t, :, :, None] * change[:, None, :]
        out[t] = np.einsum("hk,hkv->hv", q[t], state)
    return out.reshape(len(q), -1)


# --- ssm_scan ---------------------------------------------------------------------------------------------------------
def ssm_scan(g: Builder, x: Value, dt: Value, b: Value, c: Value, name: str, *, heads: int, d_state: int) -> Value:
    """Selective state spaces (Gu and Dao 2023, "Mamba"; 2024, "Transformers are SSMs"): (T, n), as x.

    x (T, n), in `heads` groups; dt (T, heads); b, c (T, groups * d_state), whose groups serve as many heads each. With a step
    softplus(dt + `name.ssm_dt.bias`) and S (n, d_state), zeros at first: S = S * exp(step * A) + step * x b; y = S c + D x.
    A `name.ssm_a` (heads, 1), or (n, d_state) where every column is a head, whose dt have their bias already; D `name.ssm_d`, of a
    number for each head.
    """
    state = g.state(RecurrentSpec((g.n(x), d_state), factors=g.n(x) if heads < g.n(x) else 0))
    weights = (f"{name}.ssm_a", f"{name}.ssm_d", *([f"{name}.ssm_dt.bias"] if heads < g.n(x) else []))
    return g.emit("ssm_scan", (x, dt, b, c), g.n(x), weights, state=state, heads=heads, d_state=d_state)


def _check_ssm_scan(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    heads, d_state = integer(node, "heads"), integer(node, "d_state")
    x, dt, b, c = inputs
    if node.n % heads or x.n != node.n or dt.n != heads or b.n != c.n or b.n % d_state or heads % max(b.n // d_state, 1):
        yield f"cannot give {node.n} of {heads} heads from inputs of {[x.n for x in inputs]}"
    yield from check_state(node, graph, (node.n, d_state), node.n if heads < node.n else 0)


def _ssm_scan_weights(node: Node, inputs: Inputs) -> Uses:
    heads, by_column = integer(node, "heads"), integer(node, "heads") == node.n
    a, d, *dt = node.weights
    shape, skip = ((heads, integer(node, "d_state")), (heads,)) if by_column else ((heads, 1), (heads, 1))
    return (*vectors([a], *shape), *vectors([d], *skip), *vectors(dt, heads))


def _ssm_scan(run: Run, node: Node, x: Array, dt: Array, b: Array, c: Array) -> Array:
    heads, d_state, n = integer(node, "heads"), integer(node, "d_state"), len(x)
    a, d, *bias = (run.weight(name) for name in node.weights)
    step = softplus(sum(bias, dt))  # (T, heads)
    by_head = x.reshape(n, heads, -1)
    b, c = (np.repeat(part.reshape(n, -1, 1, d_state), heads // (part.shape[1] // d_state), axis=1) for part in (b, c))
    state, out = np.zeros((heads, by_head.shape[-1], d_state), np.float32), np.empty_like(by_head)
    for t in range(n):
        decay = np.exp(step[t, :, None] * a.reshape(heads, -1))[:, None]  # (heads, 1, d_state or 1)
        state = state * decay + (step[t, :, None] * by_head[t])[..., None] * b[t]
        out[t] = np.sum(state * c[t], axis=-1) + d.reshape(heads, 1) * by_head[t]
    return out.reshape(n, -1)


OPS = (
    OpSpec(
        "delta_net",
        _delta_net,
        (3,),
        {"state", "k_heads", "v_heads", "dim_k", "dim_v", "grouped", "eps"},
        _check_delta_net,
        _delta_net_weights,
        (2,),
        effect="update",
    ),
    OpSpec("ssm_scan", _ssm_scan, (4,), {"state", "heads", "d_state"}, _check_ssm_scan, _ssm_scan_weights, (2, 3), effect="update"),
)
