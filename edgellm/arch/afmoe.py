"""afmoe: Arcee's Trinity; gated attention, four norms a layer, sliding layers alone know positions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgellm.arch.blocks.attention import gated_output, heads_of, layer_windows, project_qkv, rotated_attention, sliding_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, leading_dense, moe_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, and rotates nothing


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Norms before and after each half; scaled embeddings, sigmoid routing with a bias, first layers without experts."""
    eps, heads, dense, windows = norm_epsilon(keys), heads_of(keys), leading_dense(keys), layer_windows(keys, PERIOD)
    slides, experts = sliding_layers(keys, PERIOD), experts_of(keys, gating="sigmoid", normalise=True)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = scale(g, token_embedding(g, keys), math.sqrt(keys.n_embd))
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        h = rms_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, h)
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, rope if slides[layer] else None, windows[layer])
        y = matmul(g, gated_output(g, block, h, y, "sigmoid"), f"{block}.attn_output", keys.n_embd)
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        y = gated_ffn(g, block, y, n_ff, "silu") if layer < dense else moe_ffn(g, block, y, experts)
        x = add(g, x, rms_norm(g, y, f"{block}.post_ffw_norm", eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
