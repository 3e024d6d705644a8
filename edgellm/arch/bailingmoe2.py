"""bailingmoe2: Ling and Ring 2.0; one matrix for queries, keys and values, sigmoid routing with groups."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

# Heads are rotated in part; a dense layer comes first, then experts. The last layers draft.
build = decoder(
    "neox",
    qkv=Layer.fused_qkv,
    normed=Layer.normed_heads,
    ffn=Layer.dense_or_moe,
    experts=partial(experts_of, gating="sigmoid", normalise=True),
    drafting=False,
)
