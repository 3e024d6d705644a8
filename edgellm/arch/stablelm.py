"""stablelm: StableLM and Stable Code; layer norms, a part of each head rotated, parallel blocks in the largest."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Blocks of rotated attention and a silu-gated feed-forward, which has no norm of its own where they are parallel."""
    model = Transformer(keys, g, layer_norm)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.normed_heads_if_any(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        if layer.has("ffn_norm"):
            h = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.gated_ffn(h))
    model.logits(x)
