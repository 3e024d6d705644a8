"""hy_v3: Hunyuan 3; normed heads, sigmoid routing and a shared expert after the first layers."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

# The tensors say which layers have experts. The last ones draft.
build = decoder(
    "neox",
    normed=Layer.normed_heads,
    ffn=Layer.any_ffn,
    experts=partial(experts_of, gating="sigmoid", normalise=True, shared=1),
    drafting=False,
)
