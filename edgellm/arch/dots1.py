"""dots1: dots.llm1; Qwen3's attention, sigmoid routing with a bias, shared experts, first layers without experts."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

build = decoder(
    "neox", normed=Layer.normed_heads, ffn=Layer.dense_or_moe, experts=partial(experts_of, gating="sigmoid", normalise=True)
)
