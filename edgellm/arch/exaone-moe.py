"""exaone-moe: K-EXAONE; pre-norm blocks with normed heads, sliding layers alone know positions, sigmoid routing with a bias."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, leading_dense, moe_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, where some slide


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """First layers without experts, shared experts in the others. Models without a window rotate in every layer; the last draft."""
    eps, heads, dense = norm_epsilon(keys), heads_of(keys), leading_dense(keys)
    drafting = drafting_layers(g, keys)
    windows, experts = layer_windows(keys, PERIOD, drafting=drafting), experts_of(keys, gating="sigmoid", normalise=True)
    rope, slides = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox"), any(windows)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, None if slides and windows[layer] is None else rope, windows[layer])
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        x = add(g, x, gated_ffn(g, block, y, n_ff, "silu") if layer < dense else moe_ffn(g, block, y, experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
