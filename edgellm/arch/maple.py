"""maple: Maple; normed heads, experts within limits, rotation in the layers that slide only."""

from __future__ import annotations

import math
from dataclasses import replace

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer sees everything, where the file does not say which
LEAST_LIMIT = 0.5  # silu of it is above what silu is below 0, so that a limit bounds it on one side alone


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with softmax routing. A gate's limit bounds it before silu, which is silu of the limit behind it."""
    windows, experts = layer_windows(keys, PERIOD), experts_of(keys, normalise=True)
    limits = keys.floats_per_layer("swiglu_clamp_exp") or (0.0,) * keys.n_layers
    if any(limit and not limit >= LEAST_LIMIT for limit in limits):
        raise keys.bad("swiglu_clamp_exp", f"has a limit below {LEAST_LIMIT}")
    model = Transformer(keys, g, experts=experts)
    full = model.rope("neox")
    rope = replace(full, base=sliding_rope(keys, model.dim_k, full.base).base)
    x = model.embed()
    for layer, window, limit in zip(model.layers(), windows, limits, strict=True):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, None if window is None else rope, window))
        bounded = replace(experts, limit=limit / (1.0 + math.exp(-limit)), limit_up=limit) if limit else experts
        x = add(g, x, layer.moe(layer.norm(x, "ffn_norm"), bounded))
    model.logits(x)
