"""qwen2moe: Qwen1.5-MoE and Qwen2-57B-A14B; a token's shared expert counts as much as the token says."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import any_ffn, experts_of
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of biased rotated attention and a mixture of experts, whose weights need not sum to 1."""
    eps, heads, experts = norm_epsilon(keys), heads_of(keys), experts_of(keys, normalise=False)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rotated_attention(g, head, q, k, v, rope)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, any_ffn(g, keys, layer, rms_norm(g, x, f"{block}.ffn_norm", eps), experts, gated=True))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
