"""nomic-bert-moe: Nomic Embed 2; BERT's blocks with rotary positions, experts in every second layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import fused_qkv
from edgellm.arch.blocks.encoder import rotary_encoder
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_LAYERS, Keys


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks with biases; of every `moe_every_n_layers` the second has experts, without gates and biases."""
    experts = replace(experts_of(keys, normalise=False), act="gelu_erf", plain=True)
    period = keys.integer("moe_every_n_layers", 0, MAX_LAYERS, default=0)
    widths = ffn_lengths(keys, experts=True)

    def ffn(layer: int, x: Value) -> Value:
        if period > 0 and layer % period == 1:
            return routed_experts(g, f"blk.{layer}", x, experts)
        return plain_ffn(g, f"blk.{layer}", x, widths[layer], "gelu_erf")

    rotary_encoder(keys, tensors, g, fused_qkv, ffn)
