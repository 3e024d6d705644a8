"""qwen2: Qwen2, Qwen2.5, Coder and distillations; llama with biases on queries, keys and values, and rotated halves."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder

# Biases come from the file. No released Qwen2 uses the sliding window that its files mention.
build = decoder("neox")
