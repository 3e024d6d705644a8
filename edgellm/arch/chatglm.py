"""chatglm: ChatGLM 3, GLM-4-9B and GLM-Edge; half of each head rotated, biases on queries, keys and values."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer

build = decoder("norm", ffn=Layer.fused_gated_ffn)
