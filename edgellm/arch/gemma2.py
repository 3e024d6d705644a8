"""gemma2: Gemma 2; every second layer slides, scores and logits are capped, norms before and after each half of a block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import rms_norm

WINDOW = 4096  # of files that name none
SCORE_CAP, LOGIT_CAP = 50.0, 30.0  # of files that name none, as those of June 2024
PERIOD = 2  # every second layer sees everything
LAYERS_27B = 46  # the one size whose query scale is not 1/sqrt(head_dim)


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks with four norms."""
    eps, windows, heads = norm_epsilon(keys), layer_windows(keys, PERIOD, WINDOW), heads_of(keys)
    if not keys.has("attn_logit_softcapping"):
        heads = tuple(replace(head, softcap=SCORE_CAP) for head in heads)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    if keys.n_layers == LAYERS_27B:
        heads = tuple(replace(head, scale=(keys.n_embd / head.n) ** -0.5) for head in heads)
    x = scale(g, token_embedding(g, keys), math.sqrt(keys.n_embd))
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rotated_attention(g, head, q, k, v, rope, windows[layer])
        y = matmul(g, y, f"{block}.attn_output", keys.n_embd)
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        y = gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu")
        x = add(g, x, rms_norm(g, y, f"{block}.post_ffw_norm", eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps), cap=LOGIT_CAP)
