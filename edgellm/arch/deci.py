"""deci: Llama Nemotron Super and Ultra, DeciLM; llama whose layers differ: attention, one matrix in its place, or neither."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import hybrid_heads, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks. A layer without key heads has a matrix instead of attention, and nothing where it has no heads at all."""
    eps, heads = norm_epsilon(keys), hybrid_heads(keys)
    dim = next((head.dim_k for head in heads if head), 0)
    rope = rope_spec(keys, tensors, g.context, dim, "norm") if dim else None
    n_heads, lengths = keys.per_layer("attention.head_count", 0), keys.per_layer("feed_forward_length", 0)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, lengths, strict=True)):
        block = f"blk.{layer}"
        if n_heads[layer]:
            y = rms_norm(g, x, f"{block}.attn_norm", eps)
            if head is not None:
                y = rotated_attention(g, head, *project_qkv(g, head, block, y), rope)
            x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        if n_ff:
            x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
