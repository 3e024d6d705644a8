"""cohere2moe: Cohere 2 with experts; parallel blocks, rotation in layers that slide and in the first ones."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, leading_dense, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import layer_norm, rms_norm

PERIOD = 4  # of files that do not list them: every fourth layer, the first one too, sees everything


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Parallel blocks after one norm; half of what routed and shared experts give together. The last layers draft."""
    eps, heads, dense = norm_epsilon(keys), heads_of(keys), leading_dense(keys)
    norm = rms_norm if keys.has("attention.layer_norm_rms_epsilon") else layer_norm
    drafting = drafting_layers(g, keys)
    window, experts = sliding_window(keys), experts_of(keys, gating="sigmoid", normalise=False)
    slides = keys.sliding_layers("attention.sliding_window_pattern", drafting) or tuple(
        layer % PERIOD > 0 for layer in range(keys.n_layers)
    )
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block, seen = f"blk.{layer}", window if slides[layer] else None
        if layer == keys.n_layers - drafting:
            break
        h = norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, h)
        y = rotated_attention(g, head, q, k, v, rope if slides[layer] or layer < dense else None, seen)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        y = gated_ffn(g, block, h, n_ff, "silu") if layer < dense else moe_ffn(g, block, h, experts)
        x = add(g, x, scale(g, y, 0.5) if layer >= dense and experts.n_ff_shared else y)
    logits(g, keys, norm(g, select(g, x), "output_norm", eps), keys.number("logit_scale"))
