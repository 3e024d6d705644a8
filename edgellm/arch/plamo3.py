"""plamo3: PLaMo 3; four norms a block, normed heads, most layers slide."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 8  # every eighth layer sees everything, where the file does not say which
SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none


def build(keys: Keys, g: Builder) -> None:
    """Blocks of rotated attention and a silu-gated feed-forward, each with a norm before it and one after it."""
    model = Transformer(keys, g)
    windows = layer_windows(keys, PERIOD)
    dim = model.dim_k
    rope_full = replace(rope_spec(keys, g, dim, "neox"), yarn_whole_pairs=False)
    rope_sliding = sliding_rope(keys, dim, SLIDING_BASE)
    x = model.embed()
    for layer in model.layers():
        window = windows[layer.index]
        q, k, v = layer.fused_qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(
            g, x, layer.norm(layer.attention(q, k, v, rope_full if window is None else rope_sliding, window), "post_attention_norm")
        )
        y = layer.fused_gated_ffn(layer.norm(x, "ffn_norm"))
        x = add(g, x, layer.norm(y, "post_ffw_norm"))
    model.logits(x)
