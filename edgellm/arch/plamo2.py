"""plamo2: PLaMo 2; Mamba 2 whose steps, B and C are made of its convolution's output, attention in some layers."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import Heads, fused_qkv, hybrid_heads, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, fused_gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.arch.blocks.recurrent import Ssm, mamba2_sizes
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.conv import causal_conv
from edgellm.ops.dense import activation, add, columns, head_columns, matmul, mul, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.scan import ssm_scan

SHORTEST_STEPS, SHARE = 64, 16  # the row that steps are made of: a 16th of the model's, or so many numbers


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks with norms before and after each half. Layers without key heads are recurrent."""
    eps, sizes, heads = norm_epsilon(keys), mamba2_sizes(keys), hybrid_heads(keys)
    rope = rope_spec(keys, tensors, g.context, keys.integer("attention.key_length", 1, MAX_WIDTH), "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        y = _mamba(g, block, y, sizes, eps) if head is None else _attention(g, block, y, head, rope, eps)
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        y = fused_gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu")
        x = add(g, x, rms_norm(g, y, f"{block}.post_ffw_norm", eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))


def _attention(g: Builder, block: str, x: Value, head: Heads, rope: RopeSpec, eps: float) -> Value:
    """Each head's queries and keys have a norm of their own."""
    q, k, v = fused_qkv(g, head, block, x)
    q = rms_norm(g, q, f"{block}.attn_q_norm", eps, head.n, own=True)
    k = rms_norm(g, k, f"{block}.attn_k_norm", eps, head.n_kv, own=True)
    return matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", g.n(x))


def _mamba(g: Builder, block: str, x: Value, sizes: Ssm, eps: float) -> Value:
    """Every head's gate stands before its input; all heads share B and C."""
    inner, heads, state, steps = sizes.inner, sizes.rank, sizes.state, max(SHORTEST_STEPS, g.n(x) // SHARE)
    both, dim = matmul(g, x, f"{block}.ssm_in", 2 * inner), inner // heads
    y = causal_conv(g, head_columns(g, both, heads, dim, 2 * dim), f"{block}.ssm_conv1d", sizes.taps)
    y = activation(g, "silu", y)
    mixed = matmul(g, y, f"{block}.ssm_x", 2 * state + steps)
    b, c, dt = (
        rms_norm(g, columns(g, mixed, *part), f"{block}.ssm_{name}_norm", eps)
        for name, part in (("b", (0, state)), ("c", (state, 2 * state)), ("dt", (2 * state, 2 * state + steps)))
    )
    dt = matmul(g, dt, f"{block}.ssm_dt", heads, bias="")  # which the scan adds
    y = ssm_scan(g, y, dt, b, c, block, heads=heads, d_state=state)
    gate = activation(g, "silu", head_columns(g, both, heads, 0, dim))
    return matmul(g, mul(g, gate, y), f"{block}.ssm_out", g.n(x))
