"""qwen2moe: Qwen1.5-MoE and Qwen2-57B-A14B; a token's shared expert counts as much as the token says."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

# Weights of experts need not sum to 1.
build = decoder("neox", ffn=partial(Layer.any_ffn, gated=True), experts=partial(experts_of, normalise=False))
