"""openelm: OpenELM; layers with more and more heads and wider feed-forwards, normed heads."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, heads_of, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention and a silu-gated feed-forward; one matrix for queries, keys and values."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = fused_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
