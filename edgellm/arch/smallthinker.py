"""smallthinker: SmallThinker; experts chosen before attention, relu in them, sliding layers alone know positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # of files that do not list them: every fourth layer, the first one too, sees everything


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks, all with experts. Models without a window rotate in every layer."""
    eps, heads, window = norm_epsilon(keys), heads_of(keys), sliding_window(keys)
    experts = replace(experts_of(keys, normalise=True), act="relu")
    slides = keys.sliding_layers("attention.sliding_window_pattern") or tuple(layer % PERIOD > 0 for layer in range(keys.n_layers))
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block, router, seen = f"blk.{layer}", x, window if slides[layer] else None
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rotated_attention(g, head, q, k, v, None if window and seen is None else rope, seen)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, routed_experts(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), experts, router))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
