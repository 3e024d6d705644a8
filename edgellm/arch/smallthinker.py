"""smallthinker: SmallThinker; experts chosen before attention, relu in them, sliding layers alone know positions."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import sliding_layers, sliding_window
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # of files that do not list them: every fourth layer, the first one too, sees everything


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks, all with experts. Models without a window rotate in every layer."""
    window = sliding_window(keys)
    experts = replace(experts_of(keys, normalise=True), act="relu")
    model = Transformer(keys, g, experts=experts)
    slides = sliding_layers(keys, PERIOD, first=True)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        router, seen = x, window if slides[layer.index] else None
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), None if window and seen is None else rope, seen))
        x = add(g, x, routed_experts(g, layer.block, layer.norm(x, "ffn_norm"), experts, router))
    model.logits(x)
