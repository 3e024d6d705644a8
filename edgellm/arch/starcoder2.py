"""starcoder2: StarCoder2; layer norms, biases everywhere and a plain gelu feed-forward."""

from __future__ import annotations

from edgellm.arch.blocks.attention import sliding_window
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder, *, fused: bool = False) -> None:
    """Pre-norm blocks of rotated attention. llama.cpp's files do not mention the window that some sizes were trained with."""
    model = Transformer(keys, g, layer_norm)
    window = sliding_window(keys)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.fused_qkv(h) if fused else layer.qkv(h)
        x = add(g, x, layer.attention(q, k, v, rope, window))
        x = add(g, x, layer.plain_ffn(layer.norm(x, "ffn_norm"), "gelu"))
    model.logits(x)
