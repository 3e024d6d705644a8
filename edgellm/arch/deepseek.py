"""deepseek: DeepSeek MoE 16B; llama with many small experts, whose weights do not sum to 1, after the first layers."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

# Softmax routing and shared experts.
build = decoder("norm", ffn=Layer.dense_or_moe, experts=partial(experts_of, normalise=False))
