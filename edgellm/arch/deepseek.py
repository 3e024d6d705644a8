"""deepseek: DeepSeek MoE 16B; llama with many small experts, whose weights do not sum to 1, after the first layers."""

from __future__ import annotations

from typing import Literal

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder, *, style: Literal["norm", "neox"] = "norm") -> None:
    """Pre-norm blocks of rotated attention, softmax routing and shared experts. `style`: of rotation."""
    model = Transformer(keys, g, experts=experts_of(keys, normalise=False))
    rope, x = model.rope(style), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.dense_or_moe(y))
    model.logits(x)
