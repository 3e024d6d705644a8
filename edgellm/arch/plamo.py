"""plamo: PLaMo 13B; llama with attention and feed-forward side by side."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder

build = decoder("neox", ffn_norm=None)
