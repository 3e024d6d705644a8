"""Attention with rotary positions: sizes of heads, projections, states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgellm.graph import Builder, KVSpec, RopeSpec, Value
from edgellm.hparams import MAX_CONTEXT, MAX_WIDTH, Keys
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import activation, columns, head_columns, matmul, mul
from edgellm.ops.heads import head_scale
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one layer. `scale`: what scores are multiplied with; `softcap`: their limit, None where there is none;
    `max_bias`: of scores by distance (ALiBi), 0 where positions are said otherwise.
    """

    n: int
    n_kv: int
    dim_k: int
    dim_v: int
    scale: float
    softcap: float | None = None
    causal: bool = True  # whether a token sees only what comes before it
    max_bias: float = 0.0
    chunked: bool = False  # whether windows stand side by side

    @property
    def n_q(self) -> int:
        """Columns of a row of queries."""
        return self.n * self.dim_k

    @property
    def n_k(self) -> int:
        return self.n_kv * self.dim_k

    @property
    def n_v(self) -> int:
        return self.n_kv * self.dim_v

    def spec(self, window: int | None = None) -> KVSpec:
        return KVSpec(self.n_kv, self.dim_k, self.dim_v, window, causal=self.causal, chunked=self.chunked and window is not None)


def heads_of(keys: Keys, slides: Sequence[bool] = ()) -> tuple[Heads, ...]:
    """The heads of each layer, scores scaled by 1/sqrt(dim_k) where the file says nothing else. Raises BadHParam.

    `slides`: the layers whose heads have a length of their own, where the file names one.
    """
    return tuple(heads for heads in _layer_heads(keys, 1, slides) if heads is not None)


def hybrid_heads(keys: Keys) -> tuple[Heads | None, ...]:
    """The same for models some of whose layers have no attention: None where the file says 0 heads or 0 key heads."""
    return _layer_heads(keys, 0)


def _layer_heads(keys: Keys, fewest: int, slides: Sequence[bool] = ()) -> tuple[Heads | None, ...]:
    n_heads = keys.per_layer("attention.head_count", fewest)
    n_kv_heads = keys.per_layer("attention.head_count_kv", fewest, default=n_heads)
    softcap = keys.optional("attn_logit_softcapping")
    if not keys.has("attention.key_length") and len({n for n in n_heads if n}) > 1:
        raise keys.bad("attention.key_length", "is missing, though layers have different numbers of heads")
    return tuple(
        replace(_heads(keys, n, n_kv, softcap, short), causal=keys.causal) if n and n_kv else None
        for n, n_kv, short in zip(n_heads, n_kv_heads, slides or (False,) * keys.n_layers, strict=True)
    )


def _heads(keys: Keys, n: int, n_kv: int, softcap: float | None, slides: bool) -> Heads:
    if n % n_kv:
        raise keys.bad("attention.head_count_kv", f"{n_kv} does not divide the {n} query heads")
    if not keys.has("attention.key_length") and keys.n_embd % n:
        raise keys.bad("attention.head_count", f"{n} does not divide embedding_length {keys.n_embd}")
    dim_k = keys.integer("attention.key_length", 1, MAX_WIDTH, default=max(keys.n_embd // n, 1))
    dim_v = keys.integer("attention.value_length", 1, MAX_WIDTH, default=dim_k)
    if slides:
        dim_k = keys.integer("attention.key_length_swa", 1, MAX_WIDTH, default=dim_k)
        dim_v = keys.integer("attention.value_length_swa", 1, MAX_WIDTH, default=dim_v)
    return Heads(n, n_kv, dim_k, dim_v, keys.optional("attention.scale") or dim_k**-0.5, softcap)


def sliding_window(keys: Keys) -> int | None:
    """Tokens that a sliding layer sees, itself included; None where no layer slides."""
    return keys.integer("attention.sliding_window", 0, MAX_CONTEXT, default=0) or None


def layer_windows(keys: Keys, period: int, default: int | None = None, drafting: int = 0) -> tuple[int | None, ...]:
    """The window of each layer, None for those that see everything.

    Where the file does not list them, every `period`-th layer sees everything. `default`: the window of files that name none.
    `drafting`: last layers, which a file need not list.
    """
    window = default if not keys.has("attention.sliding_window") else sliding_window(keys)
    return tuple(window if flag else None for flag in sliding_layers(keys, period, drafting))


def sliding_layers(keys: Keys, period: int, drafting: int = 0, *, first: bool = False) -> tuple[bool, ...]:
    """Layers with a sliding window: by default all but the last of every `period` layers, or all but the `first` of them."""
    return keys.sliding_layers("attention.sliding_window_pattern", drafting) or tuple(
        layer % period != (0 if first else period - 1) for layer in range(keys.n_layers)
    )


def project_qkv(g: Builder, heads: Heads, block: str, x: Value) -> tuple[Value, Value, Value]:
    """Queries, keys and values from three tensors, or from one where the file has them in one."""
    if f"{block}.attn_qkv.weight" in g.tensors:
        return fused_qkv(g, heads, block, x)
    return (
        matmul(g, x, f"{block}.attn_q", heads.n_q),
        matmul(g, x, f"{block}.attn_k", heads.n_k),
        matmul(g, x, f"{block}.attn_v", heads.n_v),
    )


def fused_qkv(g: Builder, heads: Heads, block: str, x: Value) -> tuple[Value, Value, Value]:
    """Queries, keys and values from one tensor."""
    n_q, n_k, n_v = heads.n_q, heads.n_k, heads.n_v
    qkv = matmul(g, x, f"{block}.attn_qkv", n_q + n_k + n_v)
    return columns(g, qkv, 0, n_q), columns(g, qkv, n_q, n_q + n_k), columns(g, qkv, n_q + n_k, n_q + n_k + n_v)


def attention(
    g: Builder,
    heads: Heads,
    q: Value,
    k: Value,
    v: Value,
    window: int | None = None,
    learned_sinks: str | None = None,
    relative: tuple[str, int] | None = None,
) -> Value:
    """Keys and values go to a state of their own, then every query attends. The last two: see ops.attention.attend."""
    state = kv_write(g, k, v, heads.spec(window))
    return attend(g, q, state, heads.n, heads.scale, heads.softcap, heads.max_bias, learned_sinks, relative)


def rotated_attention(
    g: Builder,
    heads: Heads,
    q: Value,
    k: Value,
    v: Value,
    spec: RopeSpec | None,
    window: int | None = None,
    learned_sinks: str | None = None,
) -> Value:
    """Rotate queries and keys, then attend. `spec`: None for a layer that knows no positions."""
    if spec is not None:
        q, k = rope(g, q, spec, heads.n), rope(g, k, spec, heads.n_kv)
    return attention(g, heads, q, k, v, window, learned_sinks)


def gated_output(g: Builder, block: str, x: Value, y: Value, act: str, heads: int = 0) -> Value:
    """Attention's output y times act(gates of x), which are one for each of the `heads`; 0: one for each column."""
    gates = activation(g, act, matmul(g, x, f"{block}.attn_gate", heads or g.n(y)))
    return head_scale(g, y, gates) if heads else mul(g, gates, y)


def gated_heads(keys: Keys) -> tuple[Heads, ...]:
    """Those of `gated_attention`. Raises BadHParam."""
    heads = heads_of(keys)
    if any(head.dim_k != head.dim_v for head in heads):
        raise keys.bad("attention.value_length", "is not the length of keys, as gates need it")
    return heads


def gated_attention(g: Builder, block: str, x: Value, head: Heads, rope: RopeSpec, eps: float) -> Value:
    """Attention whose output is gated; every head's query stands before its gate."""
    both, dim = matmul(g, x, f"{block}.attn_q", 2 * head.n_q), head.dim_k
    q = rms_norm(g, head_columns(g, both, head.n, 0, dim), f"{block}.attn_q_norm", eps, head.n)
    k = rms_norm(g, matmul(g, x, f"{block}.attn_k", head.n_k), f"{block}.attn_k_norm", eps, head.n_kv)
    y = rotated_attention(g, head, q, k, matmul(g, x, f"{block}.attn_v", head.n_v), rope)
    gate = activation(g, "sigmoid", head_columns(g, both, head.n, dim, 2 * dim))
    return matmul(g, mul(g, gate, y), f"{block}.attn_output", g.n(x))
