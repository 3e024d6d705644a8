"""qwen3moe: Qwen3 with experts, in every layer of released models (30B-A3B, 235B-A22B, Coder)."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Qwen3's blocks, with a mixture of experts as their feed-forward."""
    model = Transformer(keys, g, experts=experts_of(keys, normalise=True))
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        x = add(g, x, layer.any_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
