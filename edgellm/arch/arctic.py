"""arctic: Snowflake Arctic; experts see what comes into a block, a dense feed-forward what attention makes of it."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import gated_ffn
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs). Dense feed-forwards are as wide as a row."""
    eps, heads, experts = norm_epsilon(keys), heads_of(keys), experts_of(keys, normalise=True)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block, given = f"blk.{layer}", x
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), keys.n_embd, "silu"))
        x = add(g, x, routed_experts(g, block, rms_norm(g, given, f"{block}.ffn_norm_exps", eps), experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
