"""maincoder: Maincoder 1B; every head's query and key is normalised after its rotation."""

from __future__ import annotations

from typing import Literal

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.rope import rope


def build(keys: Keys, g: Builder, *, style: Literal["norm", "neox"] = "norm") -> None:
    """Pre-norm blocks with one norm weight (head_dim,) for all query heads and one for all key heads. `style`: of rotation."""
    model = Transformer(keys, g)
    spec = model.rope(style)
    x = model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q = layer.norm(rope(g, q, spec, layer.heads.n), "attn_q_norm", layer.heads.n)
        k = layer.norm(rope(g, k, spec, layer.heads.n_kv), "attn_k_norm", layer.heads.n_kv)
        x = add(g, x, layer.attention(q, k, v))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
