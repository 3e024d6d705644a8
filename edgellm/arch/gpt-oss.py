"""gpt-oss: gpt-oss-20b and 120b; learned sinks in attention, every other layer slides, clamped experts with biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import experts_of, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

LIMIT = 7.0  # of gates and products in experts
PERIOD = 2  # every second layer sees everything


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks with biases everywhere; routing by softmax over the chosen experts."""
    eps, window, heads = norm_epsilon(keys), sliding_window(keys), heads_of(keys)
    experts = replace(experts_of(keys, normalise=True), clamp=LIMIT)
    rope = replace(rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox"), yarn_whole_pairs=False)
    sliding = keys.sliding_layers("attention.sliding_window_pattern") or tuple(
        layer % PERIOD < PERIOD - 1 for layer in range(keys.n_layers)
    )
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rotated_attention(g, head, q, k, v, rope, window if sliding[layer] else None, f"{block}.attn_sinks")
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, moe_ffn(g, block, rms_norm(g, x, f"{block}.post_attention_norm", eps), experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
