"""Parts that several architectures share, as emitters of nodes."""
from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from edgellm.graph import Builder, LayerMemory, RopeSpec, Value
from edgellm.hparams import Hparams
from edgellm.rope import yarn_magnitude

FACTORS = "rope_freqs.weight"                    # llama3's per-pair divisors
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def rope_spec(hparams: Hparams, tensors: Collection[str], context: int, style: Literal["norm", "neox"]) -> RopeSpec:
    """The rotation of layers that see everything; longrope's long factors serve contexts past the original one."""
    scaling = hparams.rope_scaling
    factors = LONG if context > scaling.original_context else SHORT
    if FACTORS in tensors:
        factors = FACTORS
    magnitude, yarn = scaling.attn_factor, None
    if scaling.kind == "yarn":
        magnitude *= scaling.yarn_attn_factor or yarn_magnitude(scaling.factor)
        yarn = (scaling.yarn_ext_factor, scaling.yarn_beta_fast, scaling.yarn_beta_slow, scaling.original_context)
    return RopeSpec(
        n_rot=hparams.rotary_dims(), style=style, base=hparams.rope_base,
        freq_scale=1.0 / scaling.factor if scaling.kind in ("linear", "yarn") else 1.0,
        factors=factors if factors in tensors else None, magnitude=magnitude, yarn=yarn,
    )


def rotated_attention(g: Builder, hparams: Hparams, q: Value, k: Value, v: Value, rope: RopeSpec, *,
                      window: int | None = None, scale: float | None = None) -> Value:
    """Rotate queries (once more for sink keys) and keys, then attend; `scale` defaults to 1/sqrt(head_dim)."""
    memory = LayerMemory(hparams.n_kv_heads, hparams.head_dim_k, hparams.head_dim_v, window)
    q_true = g.rope(q, rope, hparams.n_heads)
    q_sink = g.rope(q, rope, hparams.n_heads, "sink")
    k = g.rope(k, rope, hparams.n_kv_heads)
    scale = scale or hparams.head_dim_k**-0.5
    return g.attention(q_true, q_sink, k, v, memory, hparams.n_heads, scale, hparams.attn_softcap)


def project_qkv(g: Builder, hparams: Hparams, block: str, x: Value) -> tuple[Value, Value, Value]:
    """Queries, keys and values from three tensors."""
    return (
        g.matmul(x, f"{block}.attn_q", hparams.n_heads * hparams.head_dim_k),
        g.matmul(x, f"{block}.attn_k", hparams.n_kv_heads * hparams.head_dim_k),
        g.matmul(x, f"{block}.attn_v", hparams.n_kv_heads * hparams.head_dim_v),
    )


def gated_ffn(g: Builder, hparams: Hparams, block: str, x: Value, act: str) -> Value:
    """down(act(gate(x)) * up(x))."""
    gate = g.matmul(x, f"{block}.ffn_gate", hparams.n_ff)
    up = g.matmul(x, f"{block}.ffn_up", hparams.n_ff)
    return g.matmul(g.mul(g.activation(act, gate), up), f"{block}.ffn_down", hparams.n_embd)


def logits(g: Builder, hparams: Hparams, x: Value) -> Value:
    """Logits of the wanted rows; the embedding serves as the output matrix where the file has no `output.weight`."""
    table = "output" if "output.weight" in g.tensors else "token_embd"
    y = g.matmul(x, table, hparams.n_vocab)
    return y if hparams.final_softcap is None else g.softcap(y, hparams.final_softcap)
