"""rwkv7: RWKV-7 Goose; a state for each head instead of keys and values, and every row mixed with the one before it."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths
from edgellm.arch.blocks.rwkv import head_size, time_mix_7, without_first_values
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import activation, add, matmul, select
from edgellm.ops.norm import layer_norm
from edgellm.ops.rwkv import token_shift


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm layers of a time mix and a channel mix. The first layer's values are mixed into those of all others."""
    eps, size = norm_epsilon(keys), head_size(keys)
    without_first_values(g)
    x, first = layer_norm(g, token_embedding(g, keys), "token_embd_norm", eps), None
    for layer, n_ff in enumerate(ffn_lengths(keys)):
        block = f"blk.{layer}"
        y, first = time_mix_7(g, keys, block, layer_norm(g, x, f"{block}.attn_norm", eps), size, first)
        x = add(g, x, y)
        y = token_shift(g, layer_norm(g, x, f"{block}.attn_norm_2", eps), f"{block}.channel_mix_lerp_k", 1)
        y = activation(g, "relu_squared", matmul(g, y, f"{block}.channel_mix_key", n_ff))
        x = add(g, x, matmul(g, y, f"{block}.channel_mix_value", keys.n_embd))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
