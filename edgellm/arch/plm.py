"""plm: PLM 1.8B; latent attention and a feed-forward without a gate."""

from __future__ import annotations

from edgellm.arch.blocks.mla import latent_attention, latent_heads
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; squares of relu."""
    model = Transformer(keys, g)
    heads = latent_heads(keys, g)
    x = model.embed()
    for layer in model.layers():
        y = latent_attention(g, layer.block, layer.norm(x, "attn_norm"), heads)
        x = add(g, x, layer.output(y))
        x = add(g, x, layer.plain_ffn(layer.norm(x, "ffn_norm"), "relu_squared"))
    model.logits(x)
