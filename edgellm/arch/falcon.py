"""falcon: Falcon 7B, 40B and 180B; attention and feed-forward side by side, with a norm each in the larger ones."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Parallel blocks of rotated attention and a plain gelu feed-forward."""
    model = Transformer(keys, g, layer_norm)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        own = layer.norm(x, "attn_norm_2") if layer.has("attn_norm_2") else h
        x = add(g, x, layer.attention(*layer.fused_qkv(own), rope))
        x = add(g, x, layer.plain_ffn(h, "gelu_erf"))
    model.logits(x)
