"""RWKV's ops in MLX, the state token by token."""
from __future__ import annotations

from typing import cast

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array, Inputs, Weights
from edgellm.backends.mlx.ops._table import number, op
from edgellm.backends.mlx.ops.scan import advance
from edgellm.graph import Node
from edgellm.ops.rwkv import DECAY, SHORTEST


@op("token_shift")
def token_shift(weights: Weights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    state, parts, rows = cast(int, node.attrs["state"]), cast(int, node.attrs["parts"]), x[0].astype(mx.float32)
    change = mx.concatenate([inputs.before(state)[None], rows[:-1]]) - rows
    mix = weights.vectors[node.weights[0]].reshape(parts, -1)
    inputs.keep(state, [rows[row] for row in inputs.shape.kept])
    return (rows[:, None] + change[:, None] * mix).reshape(len(rows), -1)


@op("wkv7")
def wkv7(weights: Weights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    heads, state_number = cast(int, node.attrs["heads"]), cast(int, node.attrs["state"])
    r, w, k, v, a, *first = (part.astype(mx.float32) for part in x)
    k_k, k_a, r_k, scale, bias = (weights.vectors[name] for name in node.weights)
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
    normal = mx.fast.layer_norm(mx.stack(out), None, None, number(node, "eps")).reshape(len(r), -1)
    return normal * scale + bias + (mx.sum(rk, axis=-1, keepdims=True) * v).reshape(len(r), -1)
