"""eurobert: EuroBERT; a Llama that sees both ways."""

from __future__ import annotations

from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention and a silu-gated feed-forward."""
    model = Transformer(keys, g)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    embedding(g, keys, model.norm(x, "output_norm"))
