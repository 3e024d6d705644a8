"""qwen: Qwen 1; one matrix for queries, keys and values, and files that say twice the width of the feed-forward."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.ffn import gated_ffn
from edgellm.arch.blocks.transformer import Layer
from edgellm.graph import Value


def half_gated_ffn(layer: Layer, x: Value) -> Value:
    return gated_ffn(layer.model.g, layer.block, x, max(layer.n_ff // 2, 1), "silu")


build = decoder("neox", qkv=Layer.fused_qkv, ffn=half_gated_ffn)
