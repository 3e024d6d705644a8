"""nemotron: Nemotron-4 and Minitron; layer norms, a part of each head rotated, squared relus."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; the norms' weights have their 1 added in the file."""
    model = Transformer(keys, g, layer_norm)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.plain_ffn(layer.norm(x, "ffn_norm"), "relu_squared"))
    model.logits(x)
