"""seed_oss: Seed-OSS; qwen2 with heads of their own length and the second norm under another name."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder

# Biases come from the file.
build = decoder("neox", ffn_norm="post_attention_norm")
