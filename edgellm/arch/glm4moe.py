"""glm4moe: GLM-4.5, 4.6 and Air; half of each head rotated, sigmoid routing with a bias, layers that draft left out."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

# Heads are normalised where the file has the weights (not Air).
build = decoder(
    "neox",
    normed=Layer.normed_heads_if_any,
    ffn=Layer.dense_or_moe,
    ffn_norm="post_attention_norm",
    experts=partial(experts_of, gating="sigmoid", normalise=True),
    drafting=False,
)
