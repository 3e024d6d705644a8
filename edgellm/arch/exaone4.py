"""exaone4: EXAONE 4; norms after each half of a block and of every head, and where layers slide, the others know no positions."""

from __future__ import annotations

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer sees everything, where some slide


def build(keys: Keys, g: Builder) -> None:
    """Post-norm blocks. Models without a window rotate in every layer."""
    model = Transformer(keys, g)
    windows = layer_windows(keys, PERIOD)
    rope, slides = model.rope("neox"), any(windows)
    x = model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(x)
        q, k = layer.normed_heads(q, k)
        y = layer.attention(q, k, v, None if slides and windows[layer.index] is None else rope, windows[layer.index])
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        x = add(g, x, layer.norm(layer.gated_ffn(x), "post_ffw_norm"))
    model.logits(x)
