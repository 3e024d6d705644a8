"""ernie4_5-moe: ERNIE 4.5 with experts (21B-A3B, 300B-A47B); softmax routing with a bias, shared experts."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; after the first layers every `interleave_moe_layer_step`-th has experts."""
    model = Transformer(keys, g, experts=experts_of(keys, normalise=True))
    period = keys.integer("interleave_moe_layer_step", 1, MAX_LAYERS, default=1)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        y = layer.norm(x, "ffn_norm")
        is_dense = layer.index < model.leading_dense or (layer.index + 1) % period
        x = add(g, x, layer.gated_ffn(y) if is_dense else layer.moe(y))
    model.logits(x)
