"""lfm2: Liquid AI's LFM2 (lfm2moe: with experts); gated short convolutions, and attention in some layers."""

from __future__ import annotations

from edgellm.arch.blocks.attention import hybrid_heads
from edgellm.arch.blocks.moe import experts_of, has_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.conv import causal_conv
from edgellm.ops.dense import add, columns, matmul, mul

MOST_TAPS = 64  # of a convolution; real models have 3


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; a layer whose number of key heads is 0 has a convolution instead of attention."""
    taps = keys.integer("shortconv.l_cache", 2, MOST_TAPS)
    experts = experts_of(keys, gating="sigmoid", normalise=True) if has_experts(keys) else None
    model = Transformer(keys, g, heads=hybrid_heads(keys), experts=experts)
    rope = model.rope("neox") if model.dim_k else None
    x = model.embed()
    for layer in model.layers():
        y = layer.norm(x, "attn_norm")
        if layer.attends:
            q, k, v = layer.qkv(y)
            q, k = layer.normed_heads(q, k)
            y = layer.attention(q, k, v, rope)
        else:
            y = short_conv(g, layer.block, y, taps)
        x = add(g, x, y)
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.dense_or_moe(y) if experts else layer.gated_ffn(y))
    model.logits(x, norm="token_embd_norm")


def short_conv(g: Builder, block: str, x: Value, taps: int) -> Value:
    """Three projections b, c, z of a row: c * conv(b * z), projected back."""
    n = g.n(x)
    bcz = matmul(g, x, f"{block}.shortconv.in_proj", 3 * n)
    b, c, z = (columns(g, bcz, i * n, (i + 1) * n) for i in range(3))
    y = causal_conv(g, mul(g, b, z), f"{block}.shortconv.conv", taps)
    return matmul(g, mul(g, c, y), f"{block}.shortconv.out_proj", n)
