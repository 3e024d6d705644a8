"""Attention: keys and values are written to a state, queries read it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from edgellm.graph import Builder, Graph, KVSpec, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Positions, Run, Uses, WeightUse, integer, number

REACH = 128  # tokens, past which a relative bias does not change: in the code of T5's makers, in no file


# --- kv_write ---------------------------------------------------------------------------------------------------------
def kv_write(g: Builder, k: Value, v: Value | None, spec: KVSpec) -> int:
    """Keys and values of every token go to a new state; its index, for `attend`. `v` is None where they are part of the keys."""
    state = g.state(spec)
    g.emit("kv_write", (k,) if v is None else (k, v), 0, state=state)
    return state


def _kv_spec(node: Node, graph: Graph) -> KVSpec | str:
    """The state that a node names, or what is wrong with that."""
    state = integer(node, "state", least=0)
    if state >= len(graph.states):
        return f"names state {state} of {len(graph.states)}"
    spec = graph.states[state]
    return spec if isinstance(spec, KVSpec) else f"names state {state}, which holds no keys"


def _check_write(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    spec = _kv_spec(node, graph)
    if isinstance(spec, str):
        yield spec
        return
    needs = [spec.n_kv_heads * spec.dim_k] + [spec.n_kv_heads * spec.dim_v] * (not spec.v_is_k_prefix)
    if [x.n for x in inputs] != needs or node.n:
        yield f"gives {node.n} from inputs of {[x.n for x in inputs]}, not 0 from {needs}"
    if spec.v_is_k_prefix and (spec.n_kv_heads > 1 or spec.dim_v > spec.dim_k):
        yield f"cannot find values of {spec.dim_v} in keys of {spec.n_kv_heads} heads of {spec.dim_k}"
    if node.rows != "T":
        yield "stores every token, so it needs all rows"


def _write(run: Run, node: Node, k: Array, v: Array | None = None) -> Array:
    state = integer(node, "state", least=0)
    spec = cast(KVSpec, run.graph.states[state])
    keys = by_head(k, spec.n_kv_heads)
    run.held[state] = keys, keys[..., : spec.dim_v] if v is None else by_head(v, spec.n_kv_heads)
    return np.empty((len(k), 0), np.float32)


# --- attend -----------------------------------------------------------------------------------------------------------
def attend(
    g: Builder,
    q: Value,
    state: int,
    n_heads: int,
    scale: float,
    softcap: float | None = None,
    max_bias: float = 0.0,
    learned_sinks: str | None = None,
    relative: tuple[str, int] | None = None,
) -> Value:
    """Every query attends to what its token sees of a state: (T, n_heads * dim_v).

    `max_bias`: of scores by distance (ALiBi), see `alibi_slopes`; 0: none. `learned_sinks`: the name of a weight (n_heads,), the
    scores of one more key for each head, whose value is nothing (gpt-oss); not to be confused with the sinks of StreamingLLM.
    `relative`: the name of a weight (buckets, n_heads) that is added to scores by distance, see `relative_biases`, and its buckets.
    """
    spec = g.spec_of(state)
    assert isinstance(spec, KVSpec)
    assert relative is None or learned_sinks is None
    name, buckets = relative or (learned_sinks, 0)
    weights = () if name is None else (f"{name}.weight",)
    return g.emit(
        "attend",
        (q,),
        n_heads * spec.dim_v,
        weights,
        state=state,
        n_heads=n_heads,
        scale=scale,
        softcap=softcap,
        max_bias=max_bias,
        buckets=buckets,
    )


def alibi_slopes(n_heads: int, max_bias: float) -> Array:
    """Each head's slope (n_heads,): scores fall by it per token of distance (Press et al. 2022, "Train Short, Test Long")."""
    whole = 1 << n_heads.bit_length() - 1  # the largest power of two; the heads past it get the slopes in between
    exponents = [(h + 1) / whole if h < whole else (2 * (h - whole) + 1) / (2 * whole) for h in range(n_heads)]
    return np.float32(2.0) ** (-np.float32(max_bias) * np.array(exponents, np.float32))


def relative_biases(table: Array, away: Positions) -> Array:
    """Rows (..., heads) of a table (buckets, heads) by the distance of a key from its query (Raffel et al. 2020, "T5"): half of the
    buckets are for later keys; of each half the first is for distances of its own, the rest for wider and wider ranges up to REACH.
    """
    half, distance = len(table) // 2, np.abs(away)
    exact = half // 2
    with np.errstate(divide="ignore"):
        steps = np.log(distance.astype(np.float32) / np.float32(exact)) / np.float32(math.log(REACH / exact))
    wide = np.minimum(exact + np.maximum(steps * np.float32(half - exact), 0).astype(np.int64), half - 1)
    rows: Array = table[np.where(away > 0, half, 0) + np.where(distance < exact, distance, wide)]
    return rows


def with_sink_query(node: Node, q_sink: Value) -> Node:
    """An attend node with another query for the keys of sinks."""
    return replace(node, inputs=(node.inputs[0], q_sink))


def _check_attend(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    spec, n_heads = _kv_spec(node, graph), integer(node, "n_heads")
    if isinstance(spec, str):
        yield spec
        return
    if n_heads % spec.n_kv_heads:
        yield f"cannot share {spec.n_kv_heads} key heads among {n_heads}"
    if any(x.n != n_heads * spec.dim_k for x in inputs) or node.n != n_heads * spec.dim_v:
        yield f"gives {node.n} from inputs of {[x.n for x in inputs]}, not {n_heads * spec.dim_v} from {n_heads * spec.dim_k}"
    if integer(node, "buckets", least=0) % 4 or (node.attrs["buckets"] and (spec.causal or not node.weights)):
        yield f"cannot have {node.attrs['buckets']} buckets of distances to both sides"
    if node.rows == "S":
        yield "reads what tokens see, so it needs their rows"


def _attend_weights(node: Node, inputs: Inputs) -> Uses:
    n_heads, buckets = integer(node, "n_heads"), integer(node, "buckets", least=0)
    return tuple(WeightUse(name, (buckets, n_heads) if buckets else (n_heads,), "vector") for name in node.weights)


def _attend(run: Run, node: Node, q: Array, q_sink: Array | None = None) -> Array:
    """Nothing is ever evicted in the reference, so the first query serves the sinks, too."""
    state = integer(node, "state", least=0)
    spec = cast(KVSpec, run.graph.states[state])
    distance = run.positions[:, None] - run.positions[None, :]
    seen = distance >= 0 if spec.causal else distance == distance
    if spec.window is None and spec.chunked:
        assert run.patches is not None
        seen &= run.patches.windows[:, None] == run.patches.windows[None, :]
    elif spec.window is not None:
        reach = run.positions[:, None] % spec.window + 1 if spec.chunked else spec.window
        seen &= distance < reach if spec.causal else abs(distance) <= spec.window // 2
    if run.patches is not None and run.patches.queries:
        seen[:, -run.patches.queries :] = False
    if run.patches is not None and run.patches.ordered:
        seen[:, -run.patches.ordered :] &= distance[:, -run.patches.ordered :] >= 0
    if run.given is not None and run.given.images is not None:
        images = run.given.images
        seen |= (images[:, None] == images[None, :]) & (images >= 0)
    keys, values = run.held[state]
    learned: Array | None = None
    relative: Array | None = None
    if node.attrs["buckets"]:
        relative = np.moveaxis(relative_biases(run.weight(node.weights[0]), -distance), -1, 0)
    elif node.weights:
        learned = run.weight(node.weights[0])
    y = weighted(node, by_head(q, integer(node, "n_heads")), keys, values, seen, distance, learned, relative)
    return y.swapaxes(0, 1).reshape(len(q), -1)


def by_head(x: Array, heads: int) -> Array:
    """(T, heads * d) -> (heads, T, d)."""
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def weighted(
    node: Node,
    q: Array,
    k: Array,
    v: Array,
    seen: npt.NDArray[np.bool_],
    distance: Positions,
    learned: Array | None = None,
    relative: Array | None = None,
) -> Array:
    """q (heads, T, d), k (kv heads, S, d), v (kv heads, S, e), seen and distance (T, S), learned (heads,), relative (heads, T, S)
    -> (heads, T, e).
    """
    q_of_kv = q.reshape(k.shape[0], -1, *q.shape[1:])  # (kv heads, query heads of each, T, d)
    scores = q_of_kv @ k[:, None].swapaxes(-1, -2) * np.float32(number(node, "scale"))
    if node.attrs["softcap"] is not None:
        cap = np.float32(number(node, "softcap"))
        scores = cap * np.tanh(scores / cap)
    if max_bias := number(node, "max_bias"):
        slopes = alibi_slopes(len(q), max_bias).reshape(len(k), -1, 1, 1)
        scores = scores - slopes * abs(distance).astype(np.float32)
    if relative is not None:
        scores = scores + relative.reshape(scores.shape)
    scores = np.where(seen, scores, np.float32(-np.inf))
    top = scores.max(axis=-1, keepdims=True)
    if learned is not None:
        learned = learned.reshape(len(k), -1, 1, 1)
        top = np.maximum(top, learned)
    weights = np.exp(scores - top)
    weights /= weights.sum(axis=-1, keepdims=True) + (0 if learned is None else np.exp(learned - top))
    y: Array = (weights @ v[:, None]).reshape(*q.shape[:2], -1)
    return y


OPS = (
    OpSpec("kv_write", _write, (1, 2), {"state"}, _check_write, effect="write"),
    OpSpec(
        "attend",
        _attend,
        (1, 2),
        {"state", "n_heads", "scale", "softcap", "max_bias", "buckets"},
        _check_attend,
        _attend_weights,
        (0, 1),
        effect="read",
    ),
)
