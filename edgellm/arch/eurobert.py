"""eurobert: EuroBERT; a Llama that sees both ways."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder

build = decoder("neox", embeds="output_norm")
