"""dots1: dots.llm1; Qwen3's attention, sigmoid routing with a bias, shared experts, first layers without experts."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; one norm weight (head_dim,) for all query heads and one for all key heads."""
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True))
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.dense_or_moe(y))
    model.logits(x)
