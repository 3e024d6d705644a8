"""dbrx: DBRX; layer norms without bias, bounded queries, keys and values, experts in every layer."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, heads_of, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import experts_of, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, clamp, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention and softmax routing, whose weights sum to 1."""
    eps, heads, experts = norm_epsilon(keys), heads_of(keys), experts_of(keys, normalise=True)
    limit, rope = keys.number("attention.clamp_kqv"), rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block = f"blk.{layer}"
        q, k, v = (clamp(g, y, limit) for y in fused_qkv(g, head, block, layer_norm(g, x, f"{block}.attn_norm", eps)))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, moe_ffn(g, block, layer_norm(g, x, f"{block}.attn_output_norm", eps), experts))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
