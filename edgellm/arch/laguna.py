"""laguna: Poolside's Laguna; attention with a softplus gate, for each head or each column, sigmoid routing, most layers slide."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import gated_output, heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, leading_dense, moe_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # of files that do not list them: every fourth layer, the first one too, sees everything


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of normed heads, of which sliding layers may have others; models without a window see everything."""
    eps, heads, window, dense = norm_epsilon(keys), heads_of(keys), sliding_window(keys), leading_dense(keys)
    experts = experts_of(keys, gating="sigmoid", normalise=True, shared=1)
    slides = keys.sliding_layers("attention.sliding_window_pattern") or tuple(layer % PERIOD > 0 for layer in range(keys.n_layers))
    full = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    ropes = full, sliding_rope(keys, heads[0].dim_k, full.base)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block, seen = f"blk.{layer}", window if slides[layer] else None
        h = rms_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, h)
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, ropes[seen is not None], seen)
        by_head = tensors.get(f"{block}.attn_gate.weight", ())[:1] == (head.n,)
        y = gated_output(g, block, h, y, "softplus", head.n if by_head else 0)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        x = add(g, x, gated_ffn(g, block, y, n_ff, "silu") if layer < dense else moe_ffn(g, block, y, experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
