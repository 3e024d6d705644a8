"""plamo: PLaMo 13B; llama with attention and feed-forward side by side."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Parallel blocks after one norm, with rotated halves."""
    model = Transformer(keys, g)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        x = add(g, x, layer.attention(*layer.qkv(h), rope))
        x = add(g, x, layer.gated_ffn(h))
    model.logits(x)
