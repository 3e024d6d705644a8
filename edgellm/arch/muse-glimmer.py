"""muse-glimmer: Muse Glimmer (text); gated attention, four norms a layer, layers that slide alone know positions."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import gated_output, layer_windows
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, where the file does not say which
POST_EPSILON = 1e-8  # of the norms behind both halves, which its makers have as a setting that files do not name


def build(keys: Keys, g: Builder) -> None:
    """Blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward, after normalised embeddings."""
    model = Transformer(keys, g)
    windows = layer_windows(keys, PERIOD)
    rope = model.rope("norm")
    rope = replace(rope, base=sliding_rope(keys, model.dim_k, rope.base).base)
    x = model.norm(model.embed())
    for layer in model.layers():
        window = windows[layer.index]
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.normed_heads(q, k)
        y = layer.heads_output(q, k, v, None if window is None else rope, window)
        y = layer.output(gated_output(g, layer.block, h, y, "sigmoid"))
        x = add(g, x, rms_norm(g, y, f"{layer.block}.post_attention_norm", POST_EPSILON))
        y = layer.gated_ffn(layer.norm(x, "ffn_norm"))
        x = add(g, x, rms_norm(g, y, f"{layer.block}.post_ffw_norm", POST_EPSILON))
    model.logits(x, keys.number("logit_scale"))
