"""mellum: JetBrains' Mellum 2; as qwen3moe, but most layers slide, and no scaling touches their angles."""

from __future__ import annotations

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer sees everything, where the file does not say which


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of normed heads, with experts in every layer."""
    windows, experts = layer_windows(keys, PERIOD), experts_of(keys, normalise=True)
    model = Transformer(keys, g, experts=experts)
    full = model.rope("neox")
    ropes = (full, sliding_rope(keys, model.dim_k, full.base))
    x = model.embed()
    for layer in model.layers():
        window = windows[layer.index]
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, ropes[window is not None], window))
        x = add(g, x, layer.moe(layer.norm(x, "ffn_norm")))
    model.logits(x)
