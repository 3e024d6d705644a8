"""gemma3: Gemma 3 text models; sliding layers with their own rope base, norms before and after each half of a block."""

from __future__ import annotations

import math
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, layer_windows
from edgellm.arch.blocks.positions import MAX_BASE
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale

SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none
PERIOD = 6  # every sixth layer sees everything
LAYERS_27B = 62  # the one size whose query scale is not 1/sqrt(head_dim)


def build(keys: Keys, g: Builder) -> None:
    """Blocks with four norms; position scaling acts on the layers that see everything only."""
    windows, heads = layer_windows(keys, PERIOD), heads_of(keys)
    if keys.n_layers == LAYERS_27B:
        heads = tuple(replace(head, scale=(keys.n_embd / head.n) ** -0.5) for head in heads)
    model = Transformer(keys, g, heads=heads)
    rope_full = model.rope("neox")
    sliding_base = keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE) or SLIDING_BASE
    rope_sliding = RopeSpec(rope_full.n_rot, "neox", sliding_base)
    x = scale(g, model.embed(), math.sqrt(keys.n_embd))
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        window = windows[layer.index]
        y = layer.attention(q, k, v, rope_full if window is None else rope_sliding, window)
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        y = layer.gated_ffn(layer.norm(x, "ffn_norm"), "gelu")
        x = add(g, x, layer.norm(y, "post_ffw_norm"))
    model.logits(x)
