"""step35: Step 3.5 and 3.7; a gate for each head, sliding layers with heads of their own number, limits in some feed-forwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import gated_output, heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, moe_ffn, routes
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

LEAST_LIMIT = 0.28  # silu stays above -0.2785, so that larger limits bound it on one side, as its makers do


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of normed heads, of which full layers rotate a half; first layers without experts, last ones that only draft."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    drafting = drafting_layers(g, keys)
    windows, experts = layer_windows(keys, 1, drafting=drafting), experts_of(keys, gating="sigmoid", normalise=True)
    limits, limits_shared = _limits(keys, "swiglu_clamp_exp"), _limits(keys, "swiglu_clamp_shexp")
    whole, dim = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox"), heads[0].dim_k
    if whole.n_rot % 4:
        raise keys.bad("rope.dimension_count", f"half of {whole.n_rot} is not even")
    ropes = (
        replace(whole, n_rot=whole.n_rot // 2, n_factors=whole.n_rot // 2 if whole.factors else 0),
        sliding_rope(keys, dim, whole.base),
    )
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        h = rms_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, h)
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, ropes[windows[layer] is not None], windows[layer])
        x = add(g, x, matmul(g, gated_output(g, block, h, y, "sigmoid", head.n), f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        if routes(g, block):
            y = moe_ffn(g, block, y, replace(experts, limit=limits[layer], limit_shared=limits_shared[layer]))
        else:
            y = gated_ffn(g, block, y, n_ff, "silu", limit=limits_shared[layer])
        x = add(g, x, y)
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))


def _limits(keys: Keys, key: str) -> tuple[float | None, ...]:
    """Of each layer, None where there is none."""
    limits = keys.floats_per_layer(key) or (0.0,) * keys.n_layers
    if any(limit and not limit >= LEAST_LIMIT for limit in limits):
        raise keys.bad(key, f"has a limit below {LEAST_LIMIT}")
    return tuple(limit or None for limit in limits)
