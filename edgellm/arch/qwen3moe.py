"""qwen3moe: Qwen3 with experts, in every layer of released models (30B-A3B, 235B-A22B, Coder)."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

build = decoder("neox", normed=Layer.normed_heads, ffn=Layer.any_ffn, experts=partial(experts_of, normalise=True))
