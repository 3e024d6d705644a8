"""rwkv6qwen2: QRWKV6, Qwen 2.5 whose attention was replaced by RWKV-6's time mix."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.rwkv import add_feed_forward, head_size, time_mix_6
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm layers of a time mix, whose heads may share keys and values, and a gated feed-forward."""
    eps, size = norm_epsilon(keys), head_size(keys)
    heads = keys.n_embd // size
    shared = keys.integer("attention.head_count_kv", 0, heads, default=0) or heads
    if heads % shared:
        raise keys.bad("attention.head_count_kv", f"{shared} does not divide the {heads} heads")
    x = token_embedding(g, keys)
    for layer in range(keys.n_layers):
        y = time_mix_6(g, keys, f"blk.{layer}", rms_norm(g, x, f"blk.{layer}.attn_norm", eps), size, shared, transformed=True)
        x = add_feed_forward(g, keys, layer, x, y, eps)
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
