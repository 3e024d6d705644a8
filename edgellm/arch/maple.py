"""maple: Maple; normed heads, experts within limits, rotation in the layers that slide only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import experts_of, moe_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, where the file does not say which
LEAST_LIMIT = 0.5  # silu of it is above what silu is below 0, so that a limit bounds it on one side alone


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks with softmax routing. A gate's limit bounds it before silu, which is silu of the limit behind it."""
    eps, heads, windows, experts = norm_epsilon(keys), heads_of(keys), layer_windows(keys, PERIOD), experts_of(keys, normalise=True)
    limits = keys.floats_per_layer("swiglu_clamp_exp") or (0.0,) * keys.n_layers
    if any(limit and not limit >= LEAST_LIMIT for limit in limits):
        raise keys.bad("swiglu_clamp_exp", f"has a limit below {LEAST_LIMIT}")
    full = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    rope = replace(full, base=sliding_rope(keys, heads[0].dim_k, full.base).base)
    x = token_embedding(g, keys)
    for layer, (head, limit) in enumerate(zip(heads, limits, strict=True)):
        block, window = f"blk.{layer}", windows[layer]
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, None if window is None else rope, window)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        bounded = replace(experts, limit=limit / (1.0 + math.exp(-limit)), limit_up=limit) if limit else experts
        x = add(g, x, moe_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), bounded))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
