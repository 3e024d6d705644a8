"""phi2: Phi-1, 1.5 and 2; attention and feed-forward side by side after one layer norm, biases on logits too."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Parallel blocks; a part of each head is rotated."""
    model = Transformer(keys, g, layer_norm)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        x = add(g, x, layer.attention(*layer.qkv(h), rope))
        x = add(g, x, layer.plain_ffn(h, "gelu"))
    model.logits(x)
