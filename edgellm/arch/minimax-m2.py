"""minimax-m2: MiniMax-M2; queries and keys are normalised over all heads at once, sigmoid routing with a bias."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

build = decoder("neox", normed=Layer.normed_rows, ffn=Layer.moe, experts=partial(experts_of, gating="sigmoid", normalise=True))
