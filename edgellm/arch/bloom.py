"""bloom: BLOOM and BLOOMZ; positions are biases of scores (ALiBi), embeddings are normalised."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm

MAX_BIAS = 8.0  # of scores; files do not say it


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with layer norms, one fused query-key-value tensor and a plain gelu feed-forward."""
    model = Transformer(keys, g, layer_norm, heads=tuple(replace(head, max_bias=MAX_BIAS) for head in heads_of(keys)))
    x = model.norm(model.embed(), "token_embd_norm")
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm"))))
        x = add(g, x, layer.plain_ffn(layer.norm(x, "ffn_norm"), "gelu"))
    model.logits(x)
