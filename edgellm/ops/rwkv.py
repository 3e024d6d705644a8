"""RWKV-7 (Peng et al. 2025, "RWKV-7 Goose"): rows mixed with the row before them, and the state that a token's key edits."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from edgellm.graph import Builder, Graph, Node, RecurrentSpec, Value
from edgellm.ops._spec import Array, OpSpec, Run, WeightUse, integer, number
from edgellm.ops.dense import ONE
from edgellm.ops.scan import check_state

DECAY = -math.exp(-0.5)          # log of the strongest decay of a token
SHORTEST = 1e-12                 # of keys that are divided by their length


# --- token_shift ------------------------------------------------------------------------------------------------------
def token_shift(g: Builder, x: Value, name: str, parts: int) -> Value:
    """x + (row before - x) * m for each of `parts` rows m of a weight, side by side: (T, parts * n). Before the first are zeros.

    The weight is (parts, 1, 1, n), or (n,) for one.
    """
    state = g.state(RecurrentSpec((g.n(x),)))
    return g.emit("token_shift", (x,), parts * g.n(x), (f"{name}.weight",), state=state, parts=parts)


def _check_shift(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    if node.n != integer(node, "parts") * inputs[0].n:
        yield f"gives {node.n} from {node.attrs['parts']} times {inputs[0].n}"
    yield from check_state(node, graph, (inputs[0].n,))


def _shift_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    parts, n = integer(node, "parts"), inputs[0].n
    return (WeightUse(node.weights[0], (n,) if parts == 1 else (parts, 1, 1, n), "vector"),)


def _shift(run: Run, node: Node, x: Array) -> Array:
    before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
    mix = run.weight(node.weights[0]).reshape(integer(node, "parts"), -1)
    y: Array = x[:, None] + (before - x)[:, None] * mix
    return y.reshape(len(x), -1)


# --- wkv7 -------------------------------------------------------------------------------------------------------------
def wkv7(g: Builder, r: Value, w: Value, k: Value, v: Value, a: Value, name: str, *, heads: int, eps: float,
         first: tuple[Value, Value] | None = None) -> Value:
    """What receptances r read from the state of each head: (T, n), all inputs (T, n).

    By head, with dim = n / heads and S (dim of v, dim of k), zeros at first: kk = k * k_k, divided by its length; a = sigmoid(a);
    k *= 1 + (a - 1) * k_a; S = S diag(exp(-sigmoid(w) / sqrt(e))) - (S kk) (kk * a)' + v k'; y = S r; then y is made of mean 0 and
    variance 1, times weight plus bias of `name`_ln, and v times the sum of r * k * r_k is added. `first`: the values of the first
    layer and v's gate before its sigmoid: v += (first - v) * gate. Weights (n,): `name`_k_k, _k_a, _r_k and _ln.
    """
    state = g.state(RecurrentSpec((heads, g.n(v) // heads, g.n(k) // heads), factors=g.n(k)))
    weights = (*(f"{name}_{part}.weight" for part in ("k_k", "k_a", "r_k", "ln")), f"{name}_ln.bias")
    return g.emit("wkv7", (r, w, k, v, a, *(first or ())), g.n(v), weights, state=state, heads=heads, eps=eps)


def _check_wkv7(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    heads = integer(node, "heads")
    if node.n % heads or any(x.n != node.n for x in inputs):
        yield f"cannot give {node.n} of {heads} heads from inputs of {[x.n for x in inputs]}"
    yield from check_state(node, graph, (heads, node.n // heads, node.n // heads), node.n)


def _wkv7_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    return tuple(WeightUse(name, (node.n,), "vector") for name in node.weights)


def _sigmoid(x: Array) -> Array:
    return np.reciprocal(ONE + np.exp(-x))


def _wkv7(run: Run, node: Node, r: Array, w: Array, k: Array, v: Array, a: Array, *first: Array) -> Array:
    heads, (k_k, k_a, r_k, scale, bias) = integer(node, "heads"), (run.weight(name) for name in node.weights)
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
    centred = out - out.mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + np.float32(number(node, "eps")))
    y: Array = normal.reshape(len(r), -1) * scale + bias + (rk.sum(axis=-1, keepdims=True) * v).reshape(len(r), -1)
    return y


OPS = (
    OpSpec("token_shift", _shift, attrs=frozenset({"state", "parts"}), check=_check_shift, weights=_shift_weights,
           weight_counts=(1,), effect="update"),
    OpSpec("wkv7", _wkv7, (5, 7), frozenset({"state", "heads", "eps"}), _check_wkv7, _wkv7_weights, (5,), effect="update"),
)
