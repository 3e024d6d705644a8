"""muse-glimmer: Muse Glimmer (text); gated attention, four norms a layer, layers that slide alone know positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import gated_output, heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, where the file does not say which
POST_EPSILON = 1e-8  # of the norms behind both halves, which its makers have as a setting that files do not name


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward, after normalised embeddings."""
    eps, heads, windows = norm_epsilon(keys), heads_of(keys), layer_windows(keys, PERIOD)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    rope = replace(rope, base=sliding_rope(keys, heads[0].dim_k, rope.base).base)
    x = rms_norm(g, token_embedding(g, keys), None, eps)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block, window = f"blk.{layer}", windows[layer]
        h = rms_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, h)
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, None if window is None else rope, window)
        y = matmul(g, gated_output(g, block, h, y, "sigmoid"), f"{block}.attn_output", keys.n_embd)
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", POST_EPSILON))
        y = gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu")
        x = add(g, x, rms_norm(g, y, f"{block}.post_ffw_norm", POST_EPSILON))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps), keys.number("logit_scale"))
