"""lfm2: Liquid AI's LFM2 (lfm2moe: with experts); gated short convolutions, and attention in some layers."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import hybrid_heads, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, has_experts, leading_dense, moe_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.conv import causal_conv
from edgellm.ops.dense import add, columns, matmul, mul, select
from edgellm.ops.norm import rms_norm

MOST_TAPS = 64  # of a convolution; real models have 3


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks; a layer whose number of key heads is 0 has a convolution instead of attention."""
    eps, taps = norm_epsilon(keys), keys.integer("shortconv.l_cache", 2, MOST_TAPS)
    experts, dense = experts_of(keys, gating="sigmoid", normalise=True) if has_experts(keys) else None, leading_dense(keys)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(hybrid_heads(keys), ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        if head is None:
            y = short_conv(g, block, y, taps)
        else:
            rope = rope_spec(keys, tensors, g.context, head.dim_k, "neox")
            q, k, v = project_qkv(g, head, block, y)
            q, k = normed_heads(g, head, block, q, k, eps)
            y = matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd)
        x = add(g, x, y)
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        x = add(g, x, moe_ffn(g, block, y, experts) if experts and layer >= dense else gated_ffn(g, block, y, n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "token_embd_norm", eps))


def short_conv(g: Builder, block: str, x: Value, taps: int) -> Value:
    """Three projections b, c, z of a row: c * conv(b * z), projected back."""
    n = g.n(x)
    bcz = matmul(g, x, f"{block}.shortconv.in_proj", 3 * n)
    b, c, z = (columns(g, bcz, i * n, (i + 1) * n) for i in range(3))
    y = causal_conv(g, mul(g, b, z), f"{block}.shortconv.conv", taps)
    return matmul(g, mul(g, c, y), f"{block}.shortconv.out_proj", n)
