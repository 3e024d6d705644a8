"""nomic-bert: Nomic Embed; BERT's blocks with rotary positions and a gated feed-forward without biases."""

from __future__ import annotations

from edgellm.arch.blocks.encoder import rotary_encoder
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, g: Builder) -> None:
    """Post-norm blocks; every token is of the first type."""
    rotary_encoder(keys, g, lambda layer, x: layer.gated_ffn(x), fused=True)
