"""Attention over the ring of one layer: keys and values go to their slots, then every token attends to what it sees."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import mlx.core as mx

from edgellm.backends.mlx.ops import capped, turned
from edgellm.graph import LayerMemory, RopeSpec

Array: TypeAlias = Any           # mlx.core.array; mypy does not read MLX's types


@dataclass(frozen=True, slots=True)
class Layer:
    """What one attention node says. `spec`: the rotation of its queries, None where there is none or it lies elsewhere."""

    memory: LayerMemory
    memory_class: int
    sinks: int
    n_heads: int
    scale: float
    softcap: float | None
    spec: RopeSpec | None
    same_query: bool                             # for sinks and for the window: nothing is rotated

    def serves_once(self, single: bool) -> bool:
        """Whether one rotation of the query fits all keys after tokens were evicted: because the sinks' keys can be turned."""
        return self.same_query or (single and self.spec is not None)


@dataclass(frozen=True, slots=True)
class Held:
    """One layer's share of a conversation, before or after a step; see kv_cache."""

    keys: Array
    values: Array
    sinks: Array


def store(layer: Layer, held: Held, k: Array, v: Array, slots: Array, new_sinks: int) -> Held:
    """k (1, kv heads, T, dim) and v in their slots, in place; the first `new_sinks` tokens are kept for themselves, too."""
    sinks = held.sinks
    if new_sinks:
        sinks = _placed(sinks, k[:, :, :new_sinks], slots[:new_sinks])
    keys, values = k.astype(held.keys.dtype), v.astype(held.values.dtype)
    return Held(_placed(held.keys, keys, slots), _placed(held.values, values, slots), sinks)


def _placed(held: Array, new: Array, slots: Array) -> Array:
    if new.shape[2] == 1:
        return mx.slice_update(held, new, slots, axes=(2,))
    held[:, :, slots] = new                      # renews this very object, whose old memory nothing else holds
    return held


def turn_sinks(layer: Layer, held: Held, cos: Array, sin: Array) -> Held:
    """The sinks' keys rotated on to where the newest token wants them: queries at true positions then fit them, too."""
    assert layer.spec is not None
    keys = turned(held.sinks, layer.spec, cos, sin).astype(held.keys.dtype)
    return Held(mx.slice_update(held.keys, keys, mx.array([0]), axes=(2,)), held.values, held.sinks)


def attend(layer: Layer, held: Held, q: Array, end: int, mask: Array | None, widen: bool) -> Array:
    """MLX's own attention of q (1, heads, T, dim) over the first `end` slots: (1, heads, T, value dim).

    `mask` (T, end); None: all of them, causally. `widen`: f16 keys as f32, in which CPUs are faster.
    """
    keys, values = held.keys[:, :, :end], held.values[:, :, :end]
    if widen:
        keys, values = keys.astype(mx.float32), values.astype(mx.float32)
    how = mask if mask is not None else "causal" if q.shape[2] > 1 else None
    return mx.fast.scaled_dot_product_attention(q.astype(keys.dtype), keys, values, scale=layer.scale, mask=how)


def attend_twice(layer: Layer, held: Held, q: Array, q_sink: Array, end: int, mask: Array) -> Array:
    """The same with a second rotation of each query for the sinks' keys, or a soft cap, in float32."""
    groups = (1, layer.memory.n_kv_heads, -1, layer.memory.head_dim_k)
    keys, values = (a[:, :, :end].astype(mx.float32) for a in (held.keys, held.values))
    scores = q.reshape(groups) @ keys.swapaxes(2, 3)
    if layer.sinks:
        own = q_sink.reshape(groups) @ held.sinks.swapaxes(2, 3)
        scores = mx.concatenate([own[..., :end], scores[..., layer.sinks:]], axis=-1)
    scores = scores * layer.scale
    if layer.softcap:
        scores = capped(scores, layer.softcap)
    scores = mx.where(mask, scores.reshape(1, layer.n_heads, -1, scores.shape[-1]), -mx.inf)
    weights = mx.softmax(scores, axis=-1, precise=True)
    y = weights.reshape(*groups[:2], -1, scores.shape[-1]) @ values
    return y.reshape(1, layer.n_heads, -1, layer.memory.head_dim_v)
