"""Attention over the ring of one state: keys and values go to their slots, then every token attends to what it sees."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.mlx.inputs import Array, Held, Inputs, KVLayer, MlxWeights
from edgellm.backends.mlx.kv_quants import decode, encode, rotated
from edgellm.backends.mlx.ops._table import number, op
from edgellm.backends.mlx.ops.dense import capped, turned
from edgellm.graph import Node
from edgellm.memory.kv_types import QUANTISED
from edgellm.ops.attention import REACH, alibi_slopes, relative_biases


@op("kv_write")
def kv_write(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    state = cast(int, node.attrs["state"])
    layer, shape = inputs.layer(state), inputs.shape
    k, *v = (_by_head(a, layer.memory.n_kv_heads) for a in x)
    held = store(
        layer, inputs.held[state], k, v[0] if v else None, inputs.slots[layer.memory_class], shape.new_sinks if layer.sinks else 0
    )
    if shape.turning and layer.sinks and layer.spec:
        held = turn_sinks(layer, held, *inputs.turns[layer.spec])
    inputs.held[state] = held
    return None


@op("attend")
def attend(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    state, n_heads = cast(int, node.attrs["state"]), cast(int, node.attrs["n_heads"])
    layer, held, shape = inputs.layer(state), inputs.held[state], inputs.shape
    end, mask = shape.ends[layer.memory_class], inputs.masks[layer.memory_class]
    distances = inputs.distances[layer.memory_class] if inputs.distances else None
    if node.rows == "R" and inputs.output_rows is not None:
        n = len(inputs.slots[layer.memory_class])
        mask = (_all_seen(layer, end, n) if mask is None else mask)[inputs.output_rows]
        distances = None if distances is None else distances[inputs.output_rows]
    coded = layer.kv_type in QUANTISED
    # One query serves all keys where it is not rotated, and where the sinks' keys can be turned on instead.
    serves_once = len(x) == 1 or (shape.single and layer.spec is not None)
    plain = not (
        node.attrs["softcap"] or node.attrs["max_bias"] or node.weights or (shape.beyond and layer.sinks and not serves_once)
    )
    if plain and inputs.here and shape.single and not coded:
        return attend_here(layer, held, number(node, "scale"), x[0], end, mask)
    q, q_sink = _by_head(x[0], n_heads), _by_head(x[-1], n_heads)
    q = rotated(q.astype(mx.float32)) if coded else q
    if not plain:
        bias = _alibi(node, distances) if node.attrs["max_bias"] else None
        learned = weights.vectors[node.weights[0]] if node.weights else None
        if node.attrs["buckets"]:
            bias, learned = _relative(learned, distances), None
        y = attend_twice(layer, held, node, q, q_sink, _all_seen(layer, end, q.shape[2]) if mask is None else mask, bias, learned)
    else:
        y = attend_once(layer, held, number(node, "scale"), q, end, mask, inputs.widen)
    y = rotated(y.astype(mx.float32)) if coded else y
    return y.swapaxes(1, 2).reshape(q.shape[2], -1)


def _by_head(x: Array, heads: int) -> Array:
    """(T, heads * d), maybe in NumPy -> (1, heads, T, d)."""
    y = x.reshape(1, len(x), heads, -1).swapaxes(1, 2)
    return mx.array(y) if isinstance(y, np.ndarray) else y


def _all_seen(layer: KVLayer, end: int, n: int) -> Array:
    """The mask (n, end) of tokens that see all slots, but for those of later tokens in a causal layer."""
    if not layer.memory.causal:
        return mx.ones((n, end), mx.bool_)
    return mx.arange(end) <= mx.arange(end - n, end)[:, None]


def _alibi(node: Node, distances: Array) -> Array:
    """Biases of scores (1, heads, T, end)."""
    slopes = mx.array(alibi_slopes(cast(int, node.attrs["n_heads"]), number(node, "max_bias")))
    return -slopes[None, :, None, None] * mx.abs(distances)


def _relative(table: Array, distances: Array) -> Array:
    """The same of a table by buckets of distances."""
    away = np.arange(-REACH, REACH + 1)
    biases = mx.array(relative_biases(np.array(table), away))
    return mx.take(biases, mx.clip(-distances, -REACH, REACH) + REACH, axis=0).transpose(2, 0, 1)[None]


def store(layer: KVLayer, held: Held, k: Array, v: Array | None, slots: Array, new_sinks: int) -> Held:
    """k (1, kv heads, T, dim) and v, where keys do not hold it, in their slots, in place; the first `new_sinks` tokens are kept for
    themselves, too.
    """
    sinks = held.sinks
    if new_sinks:
        sinks = _placed(sinks, k[:, :, :new_sinks], slots[:new_sinks])
    keys, values = _placed(held.keys, _kept(layer, held.keys, k), slots), held.values
    if v is not None:
        values = _placed(values, _kept(layer, values, v), slots)
    return Held(keys, values, sinks, held.recurrent)


def _kept(layer: KVLayer, held: Array, x: Array) -> Array:
    """Keys or values as they are stored."""
    return encode(x.astype(mx.float32), layer.kv_type) if layer.kv_type in QUANTISED else x.astype(held.dtype)


def _placed(held: Array, new: Array, slots: Array) -> Array:
    if new.shape[2] == 1:
        return mx.slice_update(held, new, slots, axes=(2,))
    held[:, :, slots] = new  # renews this very object, whose old memory nothing else holds
    return held


def turn_sinks(layer: KVLayer, held: Held, cos: Array, sin: Array) -> Held:
    """The sinks' keys rotated on to where the newest token wants them: queries at true positions then fit them, too."""
    assert layer.spec is not None
    keys = _kept(layer, held.keys, turned(held.sinks, layer.spec, cos, sin))
    return replace(held, keys=mx.slice_update(held.keys, keys, mx.array([0]), axes=(2,)))


def _seen(layer: KVLayer, held: Held, end: int, widen: bool) -> tuple[Array, Array]:
    """Keys and values of the first `end` slots, in f16, or in f32 where they are or `widen` says so; quants stay rotated."""
    memory = layer.memory

    def numbers(rows: Array, dim: int) -> Array:
        if layer.kv_type in QUANTISED:
            return decode(rows[:, :, :end], dim, layer.kv_type, mx.float32 if widen else mx.float16)
        return rows[:, :, :end].astype(mx.float32) if widen else rows[:, :, :end]

    keys = numbers(held.keys, memory.dim_k)
    return keys, keys[..., : memory.dim_v] if memory.v_is_k_prefix else numbers(held.values, memory.dim_v)


def attend_once(layer: KVLayer, held: Held, scale: float, q: Array, end: int, mask: Array | None, widen: bool) -> Array:
    """MLX's own attention of q (1, heads, T, dim) over the first `end` slots: (1, heads, T, value dim).

    `mask` (T, end); None: all of them, causally where the layer is. `widen`: f16 keys as f32.
    """
    keys, values = _seen(layer, held, end, widen)
    how = mask if mask is not None else "causal" if q.shape[2] > 1 and layer.memory.causal else None
    return mx.fast.scaled_dot_product_attention(q.astype(keys.dtype), keys, values, scale=scale, mask=how)


def attend_here(layer: KVLayer, held: Held, scale: float, q: Array, end: int, mask: Array | None) -> npt.NDArray[np.float32]:
    """The same of one token by NumPy: q (1, heads * dim) -> (1, heads * value dim). MLX's CPU build takes four times as long."""
    memory = layer.memory
    keys, values = held.keys, held.keys if memory.v_is_k_prefix else held.values
    mx.eval(q, keys, values, [] if mask is None else mask)

    def numbers(rows: Array, dim: int) -> npt.NDArray[np.float32]:
        return np.asarray(rows)[0, :, :end, :dim].astype(np.float32)

    queries = np.asarray(q).reshape(memory.n_kv_heads, -1, memory.dim_k).astype(np.float32)
    scores = (queries * np.float32(scale)) @ numbers(keys, memory.dim_k).swapaxes(1, 2)
    if mask is not None:
        scores = np.where(np.asarray(mask), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    y: npt.NDArray[np.float32] = (weights @ numbers(values, memory.dim_v)).reshape(1, -1)
    return y


def attend_twice(
    layer: KVLayer, held: Held, node: Node, q: Array, q_sink: Array, mask: Array, bias: Array | None, learned: Array | None
) -> Array:
    """The same with a second query for the sinks' keys, a soft cap, biases of scores (1, heads, T, end), or scores (heads,) of a
    further key without a value, in float32.
    """
    groups, end = (1, layer.memory.n_kv_heads, -1, layer.memory.dim_k), mask.shape[-1]
    keys, values = _seen(layer, held, end, True)
    scores = q.reshape(groups) @ keys.swapaxes(2, 3)
    if layer.sinks:
        own = q_sink.reshape(groups) @ held.sinks.swapaxes(2, 3)
        scores = mx.concatenate([own[..., :end], scores[..., layer.sinks :]], axis=-1)
    scores = scores * number(node, "scale")
    if node.attrs["softcap"]:
        scores = capped(scores, number(node, "softcap"))
    scores = scores.reshape(1, q.shape[1], -1, end)
    scores = mx.where(mask, scores if bias is None else scores + bias, -mx.inf)
    if learned is not None:
        scores = mx.concatenate([scores, mx.broadcast_to(learned[:, None, None], (*scores.shape[:3], 1))], axis=-1)
    weights = mx.softmax(scores, axis=-1, precise=True)[..., :end]
    y = weights.reshape(*groups[:2], -1, end) @ values
    return y.reshape(1, q.shape[1], -1, layer.memory.dim_v)
