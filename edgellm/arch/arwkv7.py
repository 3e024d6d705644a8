"""arwkv7: ARWKV-7, Qwen 2.5 whose attention was replaced by RWKV-7's time mix."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.rwkv import add_feed_forward, head_size, time_mix_7, without_first_values
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm layers of a time mix, which may have no gate and no norm of heads, and a gated feed-forward."""
    eps, size = norm_epsilon(keys), head_size(keys)
    without_first_values(g)
    x, first = token_embedding(g, keys), None
    for layer in range(keys.n_layers):
        block = f"blk.{layer}"
        y, first = time_mix_7(g, keys, block, rms_norm(g, x, f"{block}.attn_norm", eps), size, first)
        x = add_feed_forward(g, keys, layer, x, y, eps)
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
