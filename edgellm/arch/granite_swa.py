"""granite_swa: Granite whose layers slide, dense and with experts; learned sinks, layers that do not rotate."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, fused_gated_ffn, gated_ffn
from edgellm.arch.blocks.moe import experts_of, has_experts, routed_experts
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # the first of four layers sees everything, where the file does not say which


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks with Granite's factors; a shared expert has gate and up in one matrix."""
    eps, heads, window = norm_epsilon(keys), heads_of(keys), sliding_window(keys)
    rope, residual = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm"), keys.optional("residual_scale") or 1.0
    slides = keys.sliding_layers("attention.sliding_window_pattern") or tuple(i % PERIOD > 0 for i in range(keys.n_layers))
    rotates = keys.sliding_layers("attention.rope_pattern") or (True,) * keys.n_layers
    experts = experts_of(keys, normalise=True) if has_experts(keys) else None
    lengths = (0,) * keys.n_layers if experts else ffn_lengths(keys)
    x = scale(g, token_embedding(g, keys), keys.optional("embedding_scale") or 1.0)
    for layer, (head, n_ff) in enumerate(zip(heads, lengths, strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rotated_attention(
            g, head, q, k, v, rope if rotates[layer] else None, window if slides[layer] else None, f"{block}.attn_sinks"
        )
        x = add(g, x, scale(g, matmul(g, y, f"{block}.attn_output", keys.n_embd), residual))
        z = rms_norm(g, x, f"{block}.ffn_norm", eps)
        y = gated_ffn(g, block, z, n_ff, "silu") if experts is None else routed_experts(g, block, z, experts)
        if experts is not None and experts.n_ff_shared:
            y = add(g, y, fused_gated_ffn(g, block, z, experts.n_ff_shared, "silu", "_shexp"))
        x = add(g, x, scale(g, y, residual))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps), 1.0 / (keys.optional("logit_scale") or 1.0))
