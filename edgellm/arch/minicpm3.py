"""minicpm3: MiniCPM3; latent attention in blocks with MiniCPM's factors."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.mla import latent_attention, latent_heads
from edgellm.arch.minicpm import DEPTH, EMBEDDING, WIDTH
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks with scaled residuals; rotated halves. No file says the factors, all of which are MiniCPM 2B's."""
    eps, heads = norm_epsilon(keys), latent_heads(keys, g, "neox")
    residual = DEPTH / math.sqrt(keys.n_layers)
    x = scale(g, token_embedding(g, keys), EMBEDDING)
    for layer, n_ff in enumerate(ffn_lengths(keys)):
        block = f"blk.{layer}"
        y = latent_attention(g, block, rms_norm(g, x, f"{block}.attn_norm", eps), heads)
        x = add(g, x, scale(g, matmul(g, y, f"{block}.attn_output", keys.n_embd), residual))
        y = gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu")
        x = add(g, x, scale(g, y, residual))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps), WIDTH / keys.n_embd)
