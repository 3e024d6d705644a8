"""neo-bert: NeoBERT; eurobert with pairs side by side, and fused matrices."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, heads_of, rotated_attention
from edgellm.arch.blocks.ends import norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, fused_gated_ffn
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        y = rotated_attention(g, head, *fused_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps)), rope)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, fused_gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    embedding(g, keys, rms_norm(g, x, "enc.output_norm", eps))
