"""deepseek: DeepSeek MoE 16B; llama with many small experts, whose weights do not sum to 1, after the first layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, leading_dense, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder, *, style: Literal["norm", "neox"] = "norm") -> None:
    """Pre-norm blocks of rotated attention, softmax routing and shared experts. `style`: of rotation."""
    eps, heads, dense = norm_epsilon(keys), heads_of(keys), leading_dense(keys)
    experts = experts_of(keys, normalise=False)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, style)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        x = add(g, x, gated_ffn(g, block, y, n_ff, "silu") if layer < dense else moe_ffn(g, block, y, experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
