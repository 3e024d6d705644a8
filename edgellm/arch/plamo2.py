"""plamo2: PLaMo 2; Mamba 2 whose steps, B and C are made of its convolution's output, attention in some layers."""

from __future__ import annotations

from edgellm.arch.blocks.attention import hybrid_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.arch.blocks.recurrent import Ssm, mamba2_sizes
from edgellm.arch.blocks.transformer import Layer, Transformer
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.conv import causal_conv
from edgellm.ops.dense import activation, add, columns, head_columns, matmul, mul
from edgellm.ops.norm import rms_norm
from edgellm.ops.scan import ssm_scan

SHORTEST_STEPS, SHARE = 64, 16  # the row that steps are made of: a 16th of the model's, or so many numbers


def build(keys: Keys, g: Builder) -> None:
    """Blocks with norms before and after each half. Layers without key heads are recurrent."""
    model, sizes = Transformer(keys, g, heads=hybrid_heads(keys)), mamba2_sizes(keys)
    rope = rope_spec(keys, g, keys.integer("attention.key_length", 1, MAX_WIDTH), "neox")
    x = model.embed()
    for layer in model.layers():
        y = layer.norm(x, "attn_norm")
        y = _attention(g, layer, y, rope) if layer.attends else _mamba(g, layer, y, sizes)
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        y = layer.fused_gated_ffn(layer.norm(x, "ffn_norm"))
        x = add(g, x, layer.norm(y, "post_ffw_norm"))
    model.logits(x)


def _attention(g: Builder, layer: Layer, x: Value, rope: RopeSpec) -> Value:
    """Each head's queries and keys have a norm of their own."""
    q, k, v = layer.fused_qkv(x)
    q = rms_norm(g, q, f"{layer.block}.attn_q_norm", layer.model.eps, layer.heads.n, own=True)
    k = rms_norm(g, k, f"{layer.block}.attn_k_norm", layer.model.eps, layer.heads.n_kv, own=True)
    return layer.attention(q, k, v, rope)


def _mamba(g: Builder, layer: Layer, x: Value, sizes: Ssm) -> Value:
    """Every head's gate stands before its input; all heads share B and C."""
    inner, heads, state, steps = sizes.inner, sizes.rank, sizes.state, max(SHORTEST_STEPS, g.n(x) // SHARE)
    both, dim = layer.matmul(x, "ssm_in", 2 * inner), inner // heads
    y = causal_conv(g, head_columns(g, both, heads, dim, 2 * dim), f"{layer.block}.ssm_conv1d", sizes.taps)
    y = activation(g, "silu", y)
    mixed = layer.matmul(y, "ssm_x", 2 * state + steps)
    b, c, dt = (
        layer.norm(columns(g, mixed, *part), f"ssm_{name}_norm")
        for name, part in (("b", (0, state)), ("c", (state, 2 * state)), ("dt", (2 * state, 2 * state + steps)))
    )
    dt = matmul(g, dt, f"{layer.block}.ssm_dt", heads, bias="")  # which the scan adds
    y = ssm_scan(g, y, dt, b, c, layer.block, heads=heads, d_state=state)
    gate = activation(g, "silu", head_columns(g, both, heads, 0, dim))
    return layer.matmul(mul(g, gate, y), "ssm_out", g.n(x))
