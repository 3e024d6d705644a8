"""jina-bert-v3: Jina Embeddings 3; XLM-R's blocks with rotary positions."""

from __future__ import annotations

from edgellm.arch.blocks.encoder import rotary_encoder
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, g: Builder) -> None:
    """Post-norm blocks with biases and a plain feed-forward; every token is of the first type."""
    rotary_encoder(keys, g, lambda layer, x: layer.plain_ffn(x, "gelu_erf"), fused=False)
