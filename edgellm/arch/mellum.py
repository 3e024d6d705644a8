"""mellum: JetBrains' Mellum 2; as qwen3moe, but most layers slide, and no scaling touches their angles."""

from __future__ import annotations

from collections.abc import Mapping

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


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of normed heads, with experts in every layer."""
    eps, windows, heads, experts = norm_epsilon(keys), layer_windows(keys, PERIOD), heads_of(keys), experts_of(keys, normalise=True)
    full = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    ropes = full, sliding_rope(keys, heads[0].dim_k, full.base)
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block, window = f"blk.{layer}", windows[layer]
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, ropes[window is not None], window)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, moe_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
