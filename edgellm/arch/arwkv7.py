"""arwkv7: ARWKV-7, Qwen 2.5 whose attention was replaced by RWKV-7's time mix."""

from __future__ import annotations

from edgellm.arch.blocks.rwkv import head_size, time_mix_7, without_first_values
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm layers of a time mix, which may have no gate and no norm of heads, and a gated feed-forward."""
    model = Transformer(keys, g)
    size = head_size(keys)
    without_first_values(g)
    x, first = model.embed(), None
    for layer in model.layers():
        y, first = time_mix_7(g, keys, layer.block, layer.norm(x, "attn_norm"), size, first)
        x = add(g, x, y)
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
