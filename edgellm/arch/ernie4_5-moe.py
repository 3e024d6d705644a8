"""ernie4_5-moe: ERNIE 4.5 with experts (21B-A3B, 300B-A47B); softmax routing with a bias, shared experts."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, leading_dense, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks; after the first layers every `interleave_moe_layer_step`-th has experts."""
    eps, heads, experts = norm_epsilon(keys), heads_of(keys), experts_of(keys, normalise=True)
    dense, period = leading_dense(keys), keys.integer("interleave_moe_layer_step", 1, MAX_LAYERS, default=1)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rotated_attention(g, head, q, k, v, rope)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        is_dense = layer < dense or (layer + 1) % period
        x = add(g, x, gated_ffn(g, block, y, n_ff, "silu") if is_dense else moe_ffn(g, block, y, experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
