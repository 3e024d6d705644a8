"""hunyuan-moe: Hunyuan-A13B; heads are normalised after their rotation, one shared expert stands beside the routed ones."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import attention, heads_of, project_qkv
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import experts_of, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention and a mixture of experts."""
    eps, heads, experts = norm_epsilon(keys), heads_of(keys), experts_of(keys, normalise=True)
    turn = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q = rms_norm(g, rope(g, q, turn, head.n), f"{block}.attn_q_norm", eps, head.n)
        k = rms_norm(g, rope(g, k, turn, head.n_kv), f"{block}.attn_k_norm", eps, head.n_kv)
        x = add(g, x, matmul(g, attention(g, head, q, k, v), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, moe_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
