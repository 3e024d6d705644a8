"""gemma2: Gemma 2; every second layer slides, scores and logits are capped, norms before and after each half of a block."""

from __future__ import annotations

import math
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, layer_windows
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale

WINDOW = 4096  # of files that name none
SCORE_CAP, LOGIT_CAP = 50.0, 30.0  # of files that name none, as those of June 2024
PERIOD = 2  # every second layer sees everything
LAYERS_27B = 46  # the one size whose query scale is not 1/sqrt(head_dim)


def build(keys: Keys, g: Builder) -> None:
    """Blocks with four norms."""
    windows, heads = layer_windows(keys, PERIOD, WINDOW), heads_of(keys)
    if not keys.has("attn_logit_softcapping"):
        heads = tuple(replace(head, softcap=SCORE_CAP) for head in heads)
    if keys.n_layers == LAYERS_27B:
        heads = tuple(replace(head, scale=(keys.n_embd / head.n) ** -0.5) for head in heads)
    model = Transformer(keys, g, heads=heads)
    rope = model.rope("neox")
    x = scale(g, model.embed(), math.sqrt(keys.n_embd))
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        y = layer.attention(q, k, v, rope, windows[layer.index])
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        y = layer.gated_ffn(layer.norm(x, "ffn_norm"), "gelu")
        x = add(g, x, layer.norm(y, "post_ffw_norm"))
    model.logits(x, cap=LOGIT_CAP)
