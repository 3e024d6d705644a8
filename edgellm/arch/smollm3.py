"""smollm3: SmolLM3; llama with every fourth layer without positions."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer rotates nothing


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of attention, rotated in most of them, and a silu-gated feed-forward."""
    model = Transformer(keys, g)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope if (layer.index + 1) % PERIOD else None))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
