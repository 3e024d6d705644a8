"""modern-bert: ModernBERT and what is built on it (Granite Embedding, GTE); most layers see 64 tokens to each side."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, heads_of, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, fused_gated_ffn
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.positions import MAX_BASE, rope_spec
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import add, matmul
from edgellm.ops.norm import layer_norm

SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none
PERIOD = 3  # the first of every three layers sees everything


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks, of which the first has the embedding's norm instead of its own."""
    eps, window, heads = norm_epsilon(keys), sliding_window(keys), heads_of(keys)
    rope_full = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    sliding_base = keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE) or SLIDING_BASE
    rope_sliding = RopeSpec(rope_full.n_rot, "neox", sliding_base)
    period = keys.integer("attention.sliding_window_pattern", 1, MAX_LAYERS, default=PERIOD)
    x = layer_norm(g, token_embedding(g, keys), "token_embd_norm", eps)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block, slides = f"blk.{layer}", window is not None and layer % period != 0
        y = layer_norm(g, x, f"{block}.attn_norm", eps) if f"{block}.attn_norm.weight" in tensors else x
        q, k, v = fused_qkv(g, head, block, y)
        y = rotated_attention(g, head, q, k, v, rope_sliding if slides else rope_full, window if slides else None)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, fused_gated_ffn(g, block, layer_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu_erf"))
    embedding(g, keys, layer_norm(g, x, "output_norm", eps), ranked="mean", head="gelu_erf")
