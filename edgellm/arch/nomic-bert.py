"""nomic-bert: Nomic Embed; BERT's blocks with rotary positions and a gated feed-forward without biases."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv
from edgellm.arch.blocks.encoder import rotary_encoder
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks; every token is of the first type."""
    widths = ffn_lengths(keys)
    rotary_encoder(keys, tensors, g, fused_qkv, lambda layer, x: gated_ffn(g, f"blk.{layer}", x, widths[layer], "silu"))
