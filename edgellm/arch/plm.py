"""plm: PLM 1.8B; latent attention and a feed-forward without a gate."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.mla import latent_attention, latent_heads
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks; squares of relu."""
    eps, heads = norm_epsilon(keys), latent_heads(keys, g)
    x = token_embedding(g, keys)
    for layer, n_ff in enumerate(ffn_lengths(keys)):
        block = f"blk.{layer}"
        y = latent_attention(g, block, rms_norm(g, x, f"{block}.attn_norm", eps), heads)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, plain_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "relu_squared"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
