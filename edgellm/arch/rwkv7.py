"""rwkv7: RWKV-7 Goose; a state for each head instead of keys and values, and every row mixed with the one before it."""

from __future__ import annotations

from edgellm.arch.blocks.rwkv import head_size, time_mix_7, without_first_values
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import activation, add
from edgellm.ops.norm import layer_norm
from edgellm.ops.rwkv import token_shift


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm layers of a time mix and a channel mix. The first layer's values are mixed into those of all others."""
    model = Transformer(keys, g, layer_norm)
    size = head_size(keys)
    without_first_values(g)
    x, first = model.norm(model.embed(), "token_embd_norm"), None
    for layer in model.layers():
        y, first = time_mix_7(g, keys, layer.block, layer.norm(x, "attn_norm"), size, first)
        x = add(g, x, y)
        y = token_shift(g, layer.norm(x, "attn_norm_2"), f"{layer.block}.channel_mix_lerp_k", 1)
        y = activation(g, "relu_squared", layer.matmul(y, "channel_mix_key", layer.n_ff))
        x = add(g, x, layer.matmul(y, "channel_mix_value", keys.n_embd))
    model.logits(x)
