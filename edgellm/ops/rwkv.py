"""RWKV: rows mixed with the row before them, and the states of heads that tokens change.

RWKV-6: Peng et al. 2024, "Eagle and Finch"; RWKV-7: Peng et al. 2025, "RWKV-7 Goose".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgellm.graph import Builder, Graph, Node, RecurrentSpec, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, integer, number, of_columns, vectors
from edgellm.ops.dense import ONE
from edgellm.ops.scan import check_state

DECAY = -math.exp(-0.5)  # log of the strongest decay of a token
SHORTEST = 1e-12  # of keys that are divided by their length
STRONGEST = -5.0  # log of the strongest decay in models made of transformers: their makers hold it there


# --- token_shift ------------------------------------------------------------------------------------------------------
def token_shift(g: Builder, x: Value, names: str | Sequence[str], parts: int, more: Value | None = None) -> Value:
    """x + (row before - x) * m for each of `parts` rows m of a weight, side by side: (T, parts * n). Before the first are zeros.

    The weight is (parts, 1, 1, n), or (n,) for one; or there are `parts` weights (n,). `more` (T, parts * n) is added to m.
    """
    state = g.state(RecurrentSpec((g.n(x),)))
    weights = tuple(f"{name}.weight" for name in ([names] if isinstance(names, str) else names))
    return g.emit("token_shift", (x,) if more is None else (x, more), parts * g.n(x), weights, state=state, parts=parts)


def _check_shift(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    parts, x = integer(node, "parts"), inputs[0]
    if node.n != parts * x.n or any(more.n != node.n for more in inputs[1:]):
        yield f"gives {node.n} from {parts} times {x.n} and {[more.n for more in inputs[1:]]}"
    if len(node.weights) not in (1, parts):
        yield f"has {len(node.weights)} weights for {parts} parts"
    yield from check_state(node, graph, (x.n,))


def _shift_weights(node: Node, inputs: Inputs) -> Uses:
    parts, n = integer(node, "parts"), inputs[0].n
    shape = (n,) if len(node.weights) == parts else (parts, 1, 1, n)
    return vectors(node.weights, *shape)


def _shift(run: Run, node: Node, x: Array, *more: Array) -> Array:
    before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
    mix = np.stack([run.weight(name) for name in node.weights]).reshape(1, integer(node, "parts"), -1)
    if more:
        mix = mix + more[0].reshape(len(x), *mix.shape[1:])
    y: Array = x[:, None] + (before - x)[:, None] * mix
    return y.reshape(len(x), -1)


# --- wkv6 -------------------------------------------------------------------------------------------------------------
def wkv6(g: Builder, r: Value, w: Value, k: Value, v: Value, *, heads: int, first: str | None) -> Value:
    """The output of receptances r from the state of each head: (T, n), as r and w; keys and values may have fewer heads.

    By head, with S (dim of v, dim of k), zeros at first, and d = exp(-exp(w)): y = S r + v times the sum of r * u * k, then
    S = S diag(d) + v k'. The weight `first` (heads, dim) has u. None, as in models made of transformers: d is at least exp(-5);
    k *= 1 - d; S = S diag(d) + v k'; y = S r / sqrt(dim).
    """
    dim = g.n(r) // heads
    state = g.state(RecurrentSpec((heads, dim, dim)))
    return g.emit("wkv6", (r, w, k, v), g.n(r), () if first is None else (f"{first}.weight",), state=state, heads=heads)


def _check_wkv6(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    heads, (r, w, k, v) = integer(node, "heads"), inputs
    dim = node.n // heads
    if node.n % heads or r.n != node.n or w.n != node.n or k.n != v.n or k.n % dim or heads % (k.n // dim):
        yield f"cannot give {node.n} of {heads} heads from inputs of {[x.n for x in inputs]}"
    yield from check_state(node, graph, (heads, dim, dim))


def _wkv6_weights(node: Node, inputs: Inputs) -> Uses:
    heads = integer(node, "heads")
    return vectors(node.weights, heads, node.n // heads)


def _wkv6(run: Run, node: Node, r: Array, w: Array, k: Array, v: Array) -> Array:
    heads, n = integer(node, "heads"), len(r)
    dim = node.n // heads
    k, v = (np.repeat(x.reshape(n, -1, dim), heads * dim // x.shape[1], axis=1) for x in (k, v))
    logs: Array = -np.exp(w) if node.weights else np.maximum(-np.exp(w), np.float32(STRONGEST))
    decay: Array = np.exp(logs).reshape(n, heads, dim)
    r = r.reshape(n, heads, dim)
    before, factors = r, run.weight(node.weights[0]) if node.weights else None
    if factors is None:
        factors, k = np.full(1, dim**-0.5, np.float32), k * (ONE - decay)
        before = r * factors * decay
    bonus = r * factors * k
    state, out = np.zeros((heads, dim, dim), np.float32), np.empty((n, heads, dim), np.float32)
    for t in range(n):
        out[t] = np.einsum("hvk,hk->hv", state, before[t]) + bonus[t].sum(axis=-1, keepdims=True) * v[t]
        state = state * decay[t, :, None] + v[t, :, :, None] * k[t, :, None]
    return out.reshape(n, -1)


# --- wkv7 -------------------------------------------------------------------------------------------------------------
def wkv7(
    g: Builder,
    r: Value,
    w: Value,
    k: Value,
    v: Value,
    a: Value,
    name: str,
    *,
    heads: int,
    eps: float,
    first: tuple[Value, Value] | None = None,
) -> Value:
    """The output of receptances r from the state of each head: (T, n), all inputs (T, n).

    By head, with dim = n / heads and S (dim of v, dim of k), zeros at first: kk = k * k_k, divided by its length; a = sigmoid(a);
    k *= 1 + (a - 1) * k_a; S = S diag(exp(-sigmoid(w) / sqrt(e))) - (S kk) (kk * a)' + v k'; y = S r; then y is made of mean 0 and
    variance 1, times weight plus bias of `name`_ln, and v times the sum of r * k * r_k is added. `first`: the values of the first
    layer and v's gate before its sigmoid: v += (first - v) * gate. Weights (n,): `name`_k_k, _k_a, _r_k and _ln; y is unchanged
    where the file has no _ln.
    """
    state = g.state(RecurrentSpec((heads, g.n(v) // heads, g.n(k) // heads), factors=g.n(k)))
    weights = tuple(f"{name}_{part}.weight" for part in ("k_k", "k_a", "r_k"))
    if f"{name}_ln.weight" in g.tensors or f"{name}_ln.bias" in g.tensors:
        weights += (f"{name}_ln.weight", f"{name}_ln.bias")
    return g.emit("wkv7", (r, w, k, v, a, *(first or ())), g.n(v), weights, state=state, heads=heads, eps=eps)


def _check_wkv7(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    heads = integer(node, "heads")
    if node.n % heads or any(x.n != node.n for x in inputs):
        yield f"cannot give {node.n} of {heads} heads from inputs of {[x.n for x in inputs]}"
    yield from check_state(node, graph, (heads, node.n // heads, node.n // heads), node.n)


def _sigmoid(x: Array) -> Array:
    return np.reciprocal(ONE + np.exp(-x))


def _wkv7(run: Run, node: Node, r: Array, w: Array, k: Array, v: Array, a: Array, *first: Array) -> Array:
    heads, (k_k, k_a, r_k, *norm) = integer(node, "heads"), (run.weight(name) for name in node.weights)
    if first:
        v = v + (first[0] - v) * _sigmoid(first[1])
    a, decay, kk = _sigmoid(a), np.exp(np.float32(DECAY) * _sigmoid(w)), k * k_k
    k = k * (ONE + (a - ONE) * k_a)
    r, decay, k, v, a, kk, rk = (part.reshape(len(part), heads, -1) for part in (r, decay, k, v, a, kk, r * k * r_k))
    kk = kk / np.maximum(np.sqrt(np.sum(np.square(kk), axis=-1, keepdims=True)), np.float32(SHORTEST))
    state, out = np.zeros((heads, v.shape[-1], k.shape[-1]), np.float32), np.empty_like(v)
    for t in range(len(r)):
        found = np.einsum("hvk,hk->hv", state, kk[t])
        state = state * decay[t, :, None] - found[..., None] * (kk[t] * a[t])[:, None] + v[t, :, :, None] * k[t, :, None]
        out[t] = np.einsum("hvk,hk->hv", state, r[t])
    if norm:
        scale, bias = (x.reshape(heads, -1) for x in norm)
        centred = out - out.mean(axis=-1, keepdims=True)
        variance = np.mean(np.square(centred), axis=-1, keepdims=True)
        out = centred / np.sqrt(variance + np.float32(number(node, "eps"))) * scale + bias
    y: Array = out + rk.sum(axis=-1, keepdims=True) * v
    return y.reshape(len(r), -1)


OPS = (
    OpSpec("token_shift", _shift, (1, 2), {"state", "parts"}, _check_shift, _shift_weights, (1, 2, 5), effect="update"),
    OpSpec("wkv6", _wkv6, (4,), {"state", "heads"}, _check_wkv6, _wkv6_weights, (0, 1), effect="update"),
    OpSpec("wkv7", _wkv7, (5, 7), {"state", "heads", "eps"}, _check_wkv7, of_columns, (3, 5), effect="update"),
)
