"""nomic-bert-moe: Nomic Embed 2; BERT's blocks with rotary positions, experts in every second layer."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.encoder import rotary_encoder
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.transformer import Layer
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_LAYERS, Keys


def build(keys: Keys, g: Builder) -> None:
    """Post-norm blocks with biases; of every `moe_every_n_layers` the second has experts, without gates and biases."""
    experts = replace(experts_of(keys, normalise=False), act="gelu_erf", plain=True)
    period = keys.integer("moe_every_n_layers", 0, MAX_LAYERS, default=0)

    def ffn(layer: Layer, x: Value) -> Value:
        if period > 0 and layer.index % period == 1:
            return routed_experts(g, layer.block, x, experts)
        return layer.plain_ffn(x, "gelu_erf")

    rotary_encoder(keys, g, ffn, experts=experts, fused=True)
