"""jais: Jais; GPT-2 with a silu-gated feed-forward, whose positions are biases of scores (ALiBi)."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm

MAX_BIAS = 8.0  # of scores in files that do not say it


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with layer norms and biases; scores are divided by the length of a head, not by its root."""
    max_bias = keys.optional("attention.max_alibi_bias") or MAX_BIAS
    heads = tuple(replace(head, max_bias=max_bias, scale=1.0 / head.dim_k) for head in heads_of(keys))
    model = Transformer(keys, g, layer_norm, heads=heads)
    x = model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm"))))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
