"""step35: Step 3.5 and 3.7; a gate for each head, sliding layers with heads of their own number, limits in some feed-forwards."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import gated_output, layer_windows
from edgellm.arch.blocks.moe import experts_of, routes
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

LEAST_LIMIT = 0.28  # silu stays above -0.2785, so that larger limits bound it on one side, as its makers do


def build(keys: Keys, g: Builder) -> None:
    """Blocks of normed heads, of which full layers rotate a half; first layers without experts, last ones that only draft."""
    experts = experts_of(keys, gating="sigmoid", normalise=True)
    model = Transformer(keys, g, experts=experts)
    windows = layer_windows(keys, 1, drafting=model.drafting)
    limits, limits_shared = _limits(keys, "swiglu_clamp_exp"), _limits(keys, "swiglu_clamp_shexp")
    whole, dim = model.rope("neox"), model.dim_k
    if whole.n_rot % 4:
        raise keys.bad("rope.dimension_count", f"half of {whole.n_rot} is not even")
    ropes = (
        replace(whole, n_rot=whole.n_rot // 2, n_factors=whole.n_rot // 2 if whole.factors else 0),
        sliding_rope(keys, dim, whole.base),
    )
    x = model.embed()
    for layer in model.layers(drafting=False):
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.normed_heads(q, k)
        y = layer.heads_output(q, k, v, ropes[windows[layer.index] is not None], windows[layer.index])
        x = add(g, x, layer.output(gated_output(g, layer.block, h, y, "sigmoid", layer.heads.n)))
        y = layer.norm(x, "ffn_norm")
        if routes(g, layer.block):
            y = layer.moe(y, replace(experts, limit=limits[layer.index], limit_shared=limits_shared[layer.index]))
        else:
            y = layer.gated_ffn(y, limit=limits_shared[layer.index])
        x = add(g, x, y)
    model.logits(x)


def _limits(keys: Keys, key: str) -> tuple[float | None, ...]:
    """Of each layer, None where there is none."""
    limits = keys.floats_per_layer(key) or (0.0,) * keys.n_layers
    if any(limit and not limit >= LEAST_LIMIT for limit in limits):
        raise keys.bad(key, f"has a limit below {LEAST_LIMIT}")
    return tuple(limit or None for limit in limits)
