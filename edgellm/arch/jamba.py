"""jamba: Jamba 1.5 to 1.7, Jamba Reasoning 3B; Mamba, attention in some layers, experts in others."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import attention, hybrid_heads, project_qkv
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, moe_ffn, routes
from edgellm.arch.blocks.recurrent import mamba, ssm_sizes
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks that know no positions. The tensors say which layers have experts, and 0 key heads which are recurrent."""
    eps, sizes, heads = norm_epsilon(keys), ssm_sizes(keys), hybrid_heads(keys)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        if head is not None:
            y = matmul(g, attention(g, head, *project_qkv(g, head, block, y)), f"{block}.attn_output", keys.n_embd)
        else:
            y = mamba(g, block, y, sizes, eps, norm_weights=True)
        x = add(g, x, y)
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        if routes(g, block):
            y = moe_ffn(g, block, y, experts_of(keys, normalise=False))
        else:
            y = gated_ffn(g, block, y, n_ff, "silu")
        x = add(g, x, y)
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
