"""refact: Refact 1.6B; llama whose positions are biases of scores (ALiBi)."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

MAX_BIAS = 8.0  # of scores; files do not say it


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of attention and a silu-gated feed-forward."""
    model = Transformer(keys, g, heads=tuple(replace(head, max_bias=MAX_BIAS) for head in heads_of(keys)))
    x = model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm"))))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
