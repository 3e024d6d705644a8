"""spark2_5: Spark X2.5; a gate for each head of attention, gelu, layers that slide with angles of their own."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, gated_output, heads_of, layer_windows, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, where the file does not say which


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention and a gelu-gated feed-forward; its setting names the exact gelu."""
    eps, heads, windows = norm_epsilon(keys), heads_of(keys), layer_windows(keys, PERIOD)
    full = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    ropes = full, sliding_rope(keys, heads[0].dim_k, full.base)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block, window = f"blk.{layer}", windows[layer]
        h = rms_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = fused_qkv(g, head, block, h)
        y = rotated_attention(g, head, q, k, v, ropes[window is not None], window)
        x = add(g, x, matmul(g, gated_output(g, block, h, y, "sigmoid", head.n), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu_erf"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
