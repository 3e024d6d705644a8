"""Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2"): keys and values of all heads are made of one short row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from edgellm.arch.blocks.positions import rope_spec, temperature
from edgellm.graph import Builder, KVSpec, RopeSpec, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import columns, head_columns, matmul
from edgellm.ops.heads import head_matmul, join
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope
from edgellm.rope import yarn_magnitude

SHORT_EPSILON = 1e-6  # of the norms of short rows, in the makers' code, whatever that of other norms is


@dataclass(frozen=True, slots=True)
class Latent:
    """The heads of a layer. `latent`: the short row's length; of a head's query and key, `plain` dims know no positions, and `rope`
    turns `turned` more; `dim_v`: of its value. `split`: whether a file has the matrices that make keys and values apart, so that
    the short row itself can be what is attended to. `growth`: as `rope`, for queries that grow with their position.
    """

    n: int
    latent: int
    plain: int
    turned: int
    dim_v: int
    q_latent: int  # of the row that queries are made of, 0 where it is the layer's input
    split: bool
    scale: float
    rope: RopeSpec | None  # None: nothing is turned
    growth: tuple[float, int, int] | None


def latent_heads(keys: Keys, g: Builder, style: Literal["norm", "neox"] = "norm", *, rotates: bool = True) -> Latent:
    """Those of all layers. Raises BadHParam."""
    split = keys.has("attention.key_length_mla")
    suffix = "_mla" if split else ""
    dim_k = keys.integer(f"attention.key_length{suffix}", 2, MAX_WIDTH)
    turned = keys.integer("rope.dimension_count", 1, dim_k - 1)
    spec = rope_spec(keys, g, turned, style)
    multiplier = keys.number("rope.scaling.yarn_log_multiplier", default=0.0, zero=True)
    scale = dim_k**-0.5
    if spec.yarn is not None and multiplier:  # a tenth of the model's mscale_all_dim, which equals its mscale
        mscale = 1.0 - multiplier * math.log(spec.freq_scale)
        scale *= mscale**2
        if not keys.has("rope.scaling.yarn_attn_factor"):
            spec = replace(spec, magnitude=spec.magnitude / yarn_magnitude(1.0 / spec.freq_scale))
    n, latent, growth = (
        max(keys.per_layer("attention.head_count")),
        keys.integer("attention.kv_lora_rank", 1, MAX_WIDTH),
        temperature(keys),
    )
    if growth is not None and (latent + turned if split else dim_k) % 2:
        key, size = ("attention.kv_lora_rank", latent) if split else ("attention.key_length", dim_k)
        raise keys.bad(key, f"{size} is odd, which queries that grow with their position cannot be")
    return Latent(
        n,
        latent,
        dim_k - turned,
        turned,
        keys.integer(f"attention.value_length{suffix}", 1, MAX_WIDTH, default=max(keys.n_embd // n, 1)),
        keys.integer("attention.q_lora_rank", 0, MAX_WIDTH, default=0),
        split,
        scale,
        spec if rotates else None,
        growth,
    )


def latent_attention(g: Builder, block: str, x: Value, heads: Latent) -> Value:
    """The output of all heads, before the output matrix: (T, n * dim_v)."""
    n, plain = heads.n, heads.plain
    if heads.q_latent:
        short = rms_norm(g, matmul(g, x, f"{block}.attn_q_a", heads.q_latent), f"{block}.attn_q_a_norm", SHORT_EPSILON)
        q = matmul(g, short, f"{block}.attn_q_b", n * (plain + heads.turned))
    else:
        q = matmul(g, x, f"{block}.attn_q", n * (plain + heads.turned))
    q_plain = head_columns(g, q, n, 0, plain)
    q_turned = _turned(g, head_columns(g, q, n, plain, plain + heads.turned), heads, n)
    both = matmul(g, x, f"{block}.attn_kv_a_mqa", heads.latent + heads.turned)
    short = rms_norm(g, columns(g, both, 0, heads.latent), f"{block}.attn_kv_a_norm", SHORT_EPSILON)
    k_turned = _turned(g, columns(g, both, heads.latent, heads.latent + heads.turned), heads, 1)
    if heads.split:
        q = join(g, head_matmul(g, q_plain, f"{block}.attn_k_b", n, heads.latent), q_turned, n)
        spec = KVSpec(1, heads.latent + heads.turned, heads.latent, v_is_k_prefix=True)
        state = kv_write(g, join(g, short, k_turned, 1), None, spec)
        y = attend(g, _grown(g, q, heads), state, n, heads.scale)
        return head_matmul(g, y, f"{block}.attn_v_b", n, heads.dim_v)
    both = matmul(g, short, f"{block}.attn_kv_b", n * (plain + heads.dim_v))
    k = join(g, head_columns(g, both, n, 0, plain), k_turned, n, shared=True)
    v = head_columns(g, both, n, plain, plain + heads.dim_v)
    state = kv_write(g, k, v, KVSpec(n, plain + heads.turned, heads.dim_v))
    return attend(g, _grown(g, join(g, q_plain, q_turned, n), heads), state, n, heads.scale)


def _turned(g: Builder, x: Value, heads: Latent, n: int) -> Value:
    return x if heads.rope is None else rope(g, x, heads.rope, n)


def _grown(g: Builder, q: Value, heads: Latent) -> Value:
    """Queries that grow with their position: turned by no angle, with the size that rotations may have."""
    if heads.growth is None:
        return q
    dim = g.n(q) // heads.n
    return rope(g, q, RopeSpec(dim, "norm", 10000.0, freq_scale=0.0, temperature=heads.growth), heads.n)
