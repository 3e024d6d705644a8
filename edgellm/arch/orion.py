"""orion: Orion 14B; llama with layer norms, rotated halves."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder
from edgellm.ops.norm import layer_norm

build = decoder("neox", layer_norm)
