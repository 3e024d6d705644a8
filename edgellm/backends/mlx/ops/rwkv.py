"""RWKV's ops in MLX, the state token by token."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import number, op
from edgellm.backends.mlx.ops.scan import advance
from edgellm.graph import Node
from edgellm.ops.rwkv import DECAY, SHORTEST, STRONGEST


@op("token_shift")
def token_shift(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    state, parts, rows = cast(int, node.attrs["state"]), cast(int, node.attrs["parts"]), x[0].astype(mx.float32)
    change = mx.concatenate([inputs.before(state)[None], rows[:-1]]) - rows
    mix = mx.concatenate([weights.vectors[name].reshape(-1) for name in node.weights]).reshape(1, parts, -1)
    if len(x) == 2:
        mix = mix + x[1].astype(mx.float32).reshape(len(rows), parts, -1)
    inputs.keep(state, [rows[row] for row in inputs.shape.kept])
    return (rows[:, None] + change[:, None] * mix).reshape(len(rows), -1)


@op("wkv6")
def wkv6(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    heads, state_number, n = cast(int, node.attrs["heads"]), cast(int, node.attrs["state"]), len(x[0])
    dim = node.n // heads
    r, w, k, v = (part.astype(mx.float32).reshape(n, -1, dim) for part in x)
    k, v = (mx.repeat(part, heads // part.shape[1], axis=1) for part in (k, v))
    decay = mx.exp(-mx.exp(w) if node.weights else mx.maximum(-mx.exp(w), STRONGEST))
    if node.weights:
        before, bonus = r, r * weights.vectors[node.weights[0]] * k
    else:
        r, k = r * dim**-0.5, k * (1.0 - decay)
        before, bonus = r * decay, r * k
    state, out, kept = inputs.before(state_number), list[Array](), list[Array]()
    for t in range(n):
        out.append((state @ before[t, :, :, None])[..., 0] + mx.sum(bonus[t], axis=-1, keepdims=True) * v[t])
        state = state * decay[t, :, None] + v[t, :, :, None] * k[t, :, None]
        advance(inputs, t, state, kept)
    inputs.keep(state_number, kept)
    return mx.stack(out).reshape(n, -1)


@op("wkv7")
def wkv7(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    heads, state_number = cast(int, node.attrs["heads"]), cast(int, node.attrs["state"])
    r, w, k, v, a, *first = (part.astype(mx.float32) for part in x)
    k_k, k_a, r_k, *norm = (weights.vectors[name] for name in node.weights)
    if first:
        v = v + (first[0] - v) * mx.sigmoid(first[1])
    a, decay, kk = mx.sigmoid(a), mx.exp(DECAY * mx.sigmoid(w)), k * k_k
    k = k * (1.0 + (a - 1.0) * k_a)
    r, decay, k, v, a, kk, rk = (part.reshape(len(part), heads, -1) for part in (r, decay, k, v, a, kk, r * k * r_k))
    kk = kk / mx.maximum(mx.sqrt(mx.sum(mx.square(kk), axis=-1, keepdims=True)), SHORTEST)
    state, out, kept = inputs.before(state_number), list[Array](), list[Array]()
    for t in range(len(r)):
        found = state @ kk[t, :, :, None]
        state = state * decay[t, :, None] - found * (kk[t] * a[t])[:, None] + v[t, :, :, None] * k[t, :, None]
        out.append((state @ r[t, :, :, None]).reshape(heads, -1))
        advance(inputs, t, state, kept)
    inputs.keep(state_number, kept)
    y = mx.stack(out)
    if norm:
        scale, bias = (part.reshape(heads, -1) for part in norm)
        y = mx.fast.layer_norm(y, None, None, number(node, "eps")) * scale + bias
    return (y + mx.sum(rk, axis=-1, keepdims=True) * v).reshape(len(r), -1)
