"""qwen3: Qwen3 dense; every head's query and key is normalised before its rotation."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer

# One norm weight (head_dim,) for all query heads and one for all key heads.
build = decoder("neox", normed=Layer.normed_heads)
