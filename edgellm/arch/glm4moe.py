"""glm4moe: GLM-4.5, 4.6 and Air; half of each head rotated, sigmoid routing with a bias, layers that draft left out."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, leading_dense, moe_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks, whose heads are normalised where the file has the weights (not Air). The last layers draft tokens."""
    eps, heads, dense = norm_epsilon(keys), heads_of(keys), leading_dense(keys)
    experts = experts_of(keys, gating="sigmoid", normalise=True)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    drafting = drafting_layers(g, keys)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        if f"{block}.attn_q_norm.weight" in tensors:
            q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, rope)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.post_attention_norm", eps)
        x = add(g, x, gated_ffn(g, block, y, n_ff, "silu") if layer < dense else moe_ffn(g, block, y, experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
