"""minicpm3: MiniCPM3; latent attention in blocks with MiniCPM's factors."""

from __future__ import annotations

import math

from edgellm.arch.blocks.mla import latent_attention, latent_heads
from edgellm.arch.blocks.transformer import Transformer
from edgellm.arch.minicpm import DEPTH, EMBEDDING, WIDTH
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with scaled residuals; rotated halves. No file says the factors, all of which are MiniCPM 2B's."""
    model = Transformer(keys, g)
    heads = latent_heads(keys, g, "neox")
    residual = DEPTH / math.sqrt(keys.n_layers)
    x = scale(g, model.embed(), EMBEDDING)
    for layer in model.layers():
        y = latent_attention(g, layer.block, layer.norm(x, "attn_norm"), heads)
        x = add(g, x, scale(g, layer.output(y), residual))
        y = layer.gated_ffn(layer.norm(x, "ffn_norm"))
        x = add(g, x, scale(g, y, residual))
    model.logits(x, WIDTH / keys.n_embd)
