"""neo-bert: NeoBERT; eurobert with pairs side by side, and fused matrices."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer

build = decoder("norm", qkv=Layer.fused_qkv, ffn=Layer.fused_gated_ffn, embeds="enc.output_norm")
