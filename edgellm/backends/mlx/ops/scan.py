"""Recurrent layers, token by token."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import number, op
from edgellm.graph import Node

EVERY = 32  # tokens after which what was asked for is computed, so that the graph of a prompt stays small


def softplus(x: Array) -> Array:
    return mx.logaddexp(x, mx.array(0.0, x.dtype))


def integer(node: Node, attr: str) -> int:
    return cast(int, node.attrs[attr])


@op("delta_net")
def delta_net(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    qkv, alpha, beta = (part.astype(mx.float32) for part in x)
    k_heads, v_heads, dim_k, dim_v = (integer(node, name) for name in ("k_heads", "v_heads", "dim_k", "dim_v"))
    n, width, times = len(qkv), k_heads * dim_k, v_heads // k_heads

    def spread(part: Array) -> Array:
        part = part.reshape(n, k_heads, dim_k)
        part = part * mx.rsqrt(mx.sum(mx.square(part), axis=-1, keepdims=True) + number(node, "eps"))
        return mx.repeat(part, times, axis=1) if node.attrs["grouped"] else mx.tile(part, (1, times, 1))

    q, k = spread(qkv[:, :width]) * dim_k**-0.5, spread(qkv[:, width : 2 * width])
    v = qkv[:, 2 * width :].reshape(n, v_heads, dim_v)
    a, dt = (weights.vectors[name] for name in node.weights)
    decay, gate = mx.exp(a * softplus(alpha + dt)), mx.sigmoid(beta)
    return delta_rule(inputs, node, q, k, v, decay[:, :, None], gate)


def delta_rule(inputs: Inputs, node: Node, q: Array, k: Array, v: Array, decay: Array, gate: Array) -> Array:
    """The gated delta rule, token by token: q, k (n, heads, dim_k), v (n, heads, dim_v), decay (n, heads, dim_k or 1), gate
    (n, heads) -> (n, heads * dim_v).
    """
    state, out, kept = inputs.before(integer(node, "state")), list[Array](), list[Array]()
    for t in range(len(q)):
        state = state * decay[t, :, :, None]
        change = (v[t] - (k[t, :, None] @ state)[:, 0]) * gate[t, :, None]
        state = state + k[t, :, :, None] * change[:, None]
        out.append((q[t, :, None] @ state).reshape(-1))
        advance(inputs, t, state, kept)
    inputs.keep(integer(node, "state"), kept)
    return mx.stack(out)


@op("ssm_scan")
def ssm_scan(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    values, dt, b, c = (part.astype(mx.float32) for part in x)
    n, heads, d_state = len(values), integer(node, "heads"), integer(node, "d_state")
    a, d, *bias = (weights.vectors[name] for name in node.weights)
    step, by_head = softplus(sum(bias, dt)), values.reshape(n, heads, -1)
    b, c = (mx.repeat(part.reshape(n, -1, 1, d_state), heads // (part.shape[1] // d_state), axis=1) for part in (b, c))
    state, out, kept = inputs.before(integer(node, "state")).reshape(heads, -1, d_state), list[Array](), list[Array]()
    for t in range(n):
        decay = mx.exp(step[t, :, None] * a.reshape(heads, -1))[:, None]
        state = state * decay + (step[t, :, None] * by_head[t])[..., None] * b[t]
        out.append((mx.sum(state * c[t], axis=-1) + d.reshape(heads, 1) * by_head[t]).reshape(-1))
        advance(inputs, t, state, kept)
    inputs.keep(integer(node, "state"), [one.reshape(node.n, d_state) for one in kept])
    return mx.stack(out)


def advance(inputs: Inputs, t: int, state: Array, kept: list[Array]) -> None:
    """After token `t`: what is kept of it."""
    if t in inputs.shape.kept:
        kept.append(state)
    if t % EVERY == EVERY - 1 and not inputs.shape.single:
        mx.eval(state)
