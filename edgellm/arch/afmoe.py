"""afmoe: Arcee's Trinity; gated attention, four norms a layer, sliding layers alone know positions."""

from __future__ import annotations

import math

from edgellm.arch.blocks.attention import gated_output, layer_windows, sliding_layers
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale

PERIOD = 4  # every fourth layer sees everything, and rotates nothing


def build(keys: Keys, g: Builder) -> None:
    """Norms before and after each half; scaled embeddings, sigmoid routing with a bias, first layers without experts."""
    windows = layer_windows(keys, PERIOD)
    slides, experts = sliding_layers(keys, PERIOD), experts_of(keys, gating="sigmoid", normalise=True)
    model = Transformer(keys, g, experts=experts)
    rope = model.rope("neox")
    x = scale(g, model.embed(), math.sqrt(keys.n_embd))
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.normed_heads(q, k)
        y = layer.heads_output(q, k, v, rope if slides[layer.index] else None, windows[layer.index])
        y = layer.output(gated_output(g, layer.block, h, y, "sigmoid"))
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        y = layer.norm(x, "ffn_norm")
        y = layer.dense_or_moe(y)
        x = add(g, x, layer.norm(y, "post_ffw_norm"))
    model.logits(x)
