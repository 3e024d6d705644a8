"""gemma3: Gemma 3 text models; sliding layers with their own rope base, norms before and after each half of a block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import MAX_BASE, rope_spec
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import rms_norm

SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none
PERIOD = 6  # every sixth layer sees everything
LAYERS_27B = 62  # the one size whose query scale is not 1/sqrt(head_dim)


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks with four norms; position scaling acts on the layers that see everything only."""
    eps, windows, heads = norm_epsilon(keys), layer_windows(keys, PERIOD), heads_of(keys)
    rope_full = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    sliding_base = keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE) or SLIDING_BASE
    rope_sliding = RopeSpec(rope_full.n_rot, "neox", sliding_base)
    if keys.n_layers == LAYERS_27B:
        heads = tuple(replace(head, scale=(keys.n_embd / head.n) ** -0.5) for head in heads)
    x = scale(g, token_embedding(g, keys), math.sqrt(keys.n_embd))
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        window = windows[layer]
        y = rotated_attention(g, head, q, k, v, rope_full if window is None else rope_sliding, window)
        y = matmul(g, y, f"{block}.attn_output", keys.n_embd)
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        y = gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu")
        x = add(g, x, rms_norm(g, y, f"{block}.post_ffw_norm", eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
