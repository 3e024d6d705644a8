"""chatglm: ChatGLM 3, GLM-4-9B and GLM-Edge; half of each head rotated, biases on queries, keys and values."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs); gate and up are one tensor."""
    model = Transformer(keys, g)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.fused_gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
