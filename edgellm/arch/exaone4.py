"""exaone4: EXAONE 4; norms after each half of a block and of every head, and where layers slide, the others know no positions."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, where some slide


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks. Models without a window rotate in every layer."""
    eps, windows, heads = norm_epsilon(keys), layer_windows(keys, PERIOD), heads_of(keys)
    rope, slides = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox"), any(windows)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, x)
        q, k = normed_heads(g, head, block, q, k, eps)
        y = rotated_attention(g, head, q, k, v, None if slides and windows[layer] is None else rope, windows[layer])
        y = matmul(g, y, f"{block}.attn_output", keys.n_embd)
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        x = add(g, x, rms_norm(g, gated_ffn(g, block, x, n_ff, "silu"), f"{block}.post_ffw_norm", eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
