"""kimi-linear: Kimi Linear; most layers keep a state that each key dim decays in by itself, the others attend without rotation."""

from __future__ import annotations

from edgellm.arch.blocks.attention import Heads, project_qkv
from edgellm.arch.blocks.mla import latent_attention, latent_heads
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.recurrent import LENGTH_EPSILON, MOST_TAPS
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.conv import causal_conv
from edgellm.ops.dense import activation, add, matmul, mul
from edgellm.ops.kda import decays, kda
from edgellm.ops.norm import rms_norm


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks, the first ones without experts. A layer without key heads keeps a state."""
    latent = latent_heads(keys, g, rotates=False)
    experts = experts_of(keys, gating="sigmoid", normalise=True)
    model = Transformer(keys, g, experts=experts)
    dim, taps = keys.integer("kda.head_dim", 1, MAX_WIDTH), keys.integer("ssm.conv_kernel", 2, MOST_TAPS)
    if dim % 8:
        raise keys.bad("kda.head_dim", f"{dim} is not a multiple of 8")
    heads = Heads(latent.n, latent.n, dim, dim, 1.0)
    attends = keys.per_layer("attention.head_count_kv", 0)
    x = model.embed()
    for layer in model.layers():
        y = layer.norm(x, "attn_norm")
        if attends[layer.index]:
            y = latent_attention(g, layer.block, y, latent)
        else:
            y = delta_attention(g, layer.block, y, heads, taps, model.eps)
        x = add(g, x, layer.output(y))
        x = add(g, x, layer.dense_or_moe(layer.norm(x, "ffn_norm")))
    model.logits(x)


def delta_attention(g: Builder, block: str, x: Value, heads: Heads, taps: int, eps: float) -> Value:
    """The output of all heads, before the output matrix; decays and gates are projected from short rows."""
    mixed, beta = project_qkv(g, heads, block, x), matmul(g, x, f"{block}.ssm_beta", heads.n)
    short = [matmul(g, x, f"{block}.ssm_{name}_a", heads.dim_k) for name in "fg"]
    decay, gate = (matmul(g, row, f"{block}.ssm_{name}_b", heads.n_q) for row, name in zip(short, "fg", strict=True))
    q, k, v = (
        activation(g, "silu", causal_conv(g, part, f"{block}.ssm_conv1d_{name}", taps))
        for name, part in zip("qkv", mixed, strict=True)
    )
    y = kda(g, q, k, v, decays(g, decay, block, heads.n), beta, heads=heads.n, eps=LENGTH_EPSILON)
    return mul(g, activation(g, "sigmoid", gate), rms_norm(g, y, f"{block}.ssm_norm", eps, heads.n))
