"""plamo3: PLaMo 3; four norms a block, normed heads, most layers slide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import fused_qkv, heads_of, layer_windows, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, fused_gated_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 8  # every eighth layer sees everything, where the file does not say which
SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of rotated attention and a silu-gated feed-forward, each with a norm before it and one after it."""
    eps, windows, heads = norm_epsilon(keys), layer_windows(keys, PERIOD), heads_of(keys)
    dim = heads[0].dim_k
    rope_full = replace(rope_spec(keys, tensors, g.context, dim, "neox"), yarn_whole_pairs=False)
    rope_sliding = sliding_rope(keys, dim, SLIDING_BASE)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block, window = f"blk.{layer}", windows[layer]
        q, k, v = fused_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, rope_full if window is None else rope_sliding, window)
        x = add(g, x, rms_norm(g, matmul(g, y, f"{block}.attn_output", keys.n_embd), f"{block}.post_attention_norm", eps))
        y = fused_gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu")
        x = add(g, x, rms_norm(g, y, f"{block}.post_ffw_norm", eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
