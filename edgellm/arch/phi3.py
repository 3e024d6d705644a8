"""phi3: Phi-3, Phi-3.5, Phi-4, Phi-4-mini; fused query-key-value and gate-up tensors, longrope, partial rotation."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer

# The window of the model makers' definition is kept (llama.cpp ignores it).
build = decoder("neox", qkv=Layer.fused_qkv, ffn=Layer.fused_gated_ffn, slides=True)
