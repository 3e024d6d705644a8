"""gemma3: Gemma 3 text models; sliding layers with their own rope base, norms before and after each half of a block."""
from __future__ import annotations

import math
from collections.abc import Mapping

from edgellm.arch._blocks import gated_ffn, logits, project_qkv, rope_spec, rotated_attention
from edgellm.graph import Builder, Graph, RopeSpec
from edgellm.hparams import Hparams

SLIDING_BASE = 10000.0           # rope base of sliding layers where the file names none
PERIOD = 6                       # every sixth layer sees everything
LAYERS_27B = 62                  # the one size whose query scale is not 1/sqrt(head_dim)


def build(hparams: Hparams, tensors: Mapping[str, tuple[int, ...]], context: int) -> Graph:
    """Blocks with four norms; position scaling acts on the layers that see everything only."""
    g, rope_full = Builder(tensors), rope_spec(hparams, tensors, context, "neox")
    rope_sliding = RopeSpec(rope_full.n_rot, "neox", hparams.rope_base_swa or SLIDING_BASE)
    sliding = hparams.sliding_layers or tuple(layer % PERIOD < PERIOD - 1 for layer in range(hparams.n_layers))
    scale = (hparams.n_embd / hparams.n_heads) ** -0.5 if hparams.n_layers == LAYERS_27B else None
    x = g.scale(g.embed("token_embd", hparams.n_vocab, hparams.n_embd), math.sqrt(hparams.n_embd))
    for layer in range(hparams.n_layers):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, hparams, block, g.rms_norm(x, f"{block}.attn_norm", hparams.eps))
        q = g.rms_norm(q, f"{block}.attn_q_norm", hparams.eps, hparams.n_heads)
        k = g.rms_norm(k, f"{block}.attn_k_norm", hparams.eps, hparams.n_kv_heads)
        slides = sliding[layer] and hparams.sliding_window is not None
        y = rotated_attention(g, hparams, q, k, v, rope_sliding if slides else rope_full,
                              window=hparams.sliding_window if slides else None, scale=scale)
        y = g.matmul(y, f"{block}.attn_output", hparams.n_embd)
        x = g.add(x, g.rms_norm(y, f"{block}.post_attention_norm", hparams.eps))
        y = gated_ffn(g, hparams, block, g.rms_norm(x, f"{block}.ffn_norm", hparams.eps), "gelu")
        x = g.add(x, g.rms_norm(y, f"{block}.post_ffw_norm", hparams.eps))
    return g.graph(logits(g, hparams, g.rms_norm(g.select(x), "output_norm", hparams.eps)))
