"""gpt-oss: gpt-oss-20b and 120b; learned sinks in attention, every other layer slides, clamped experts with biases."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import sliding_layers, sliding_window
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

LIMIT = 7.0  # of gates and products in experts
PERIOD = 2  # every second layer sees everything


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with biases everywhere; routing by softmax over the chosen experts."""
    window = sliding_window(keys)
    model = Transformer(keys, g, experts=replace(experts_of(keys, normalise=True), clamp=LIMIT))
    rope = replace(model.rope("neox"), yarn_whole_pairs=False)
    sliding = sliding_layers(keys, PERIOD)
    x = model.embed()
    for layer in model.layers():
        x = add(
            g,
            x,
            layer.attention(
                *layer.qkv(layer.norm(x, "attn_norm")), rope, window if sliding[layer.index] else None, f"{layer.block}.attn_sinks"
            ),
        )
        x = add(g, x, layer.moe(layer.norm(x, "post_attention_norm")))
    model.logits(x)
