"""openelm: OpenELM; layers with more and more heads and wider feed-forwards, normed heads."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer

# One matrix for queries, keys and values.
build = decoder("neox", qkv=Layer.fused_qkv, normed=Layer.normed_heads)
