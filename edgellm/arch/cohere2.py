"""cohere2: Command R7B and A; attention and feed-forward side by side, rotation in the layers that slide only."""

from __future__ import annotations

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm

PERIOD = 4  # every fourth layer sees everything


def build(keys: Keys, g: Builder) -> None:
    """Parallel blocks after one layer norm; logits are scaled."""
    model = Transformer(keys, g, layer_norm)
    windows = layer_windows(keys, PERIOD)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        x = add(g, x, layer.attention(*layer.qkv(h), None if windows[layer.index] is None else rope, windows[layer.index]))
        x = add(g, x, layer.gated_ffn(h))
    model.logits(x, keys.number("logit_scale"))
