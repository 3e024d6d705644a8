"""gemma: Gemma 1 and CodeGemma; embeddings scaled by the root of the width, gelu-gated feed-forward."""

from __future__ import annotations

import math

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; the norms' weights have their 1 added in the file."""
    model = Transformer(keys, g)
    rope = model.rope("neox")
    x = scale(g, model.embed(), math.sqrt(keys.n_embd))
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm"), "gelu"))
    model.logits(x)
