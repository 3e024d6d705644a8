"""olmoe: OLMoE; queries and keys are normalised over all heads at once."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

# Weights of experts need not sum to 1.
build = decoder("neox", normed=Layer.normed_rows, ffn=Layer.moe, experts=partial(experts_of, normalise=False))
