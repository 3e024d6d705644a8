"""llama-embed: Llama Embed Nemotron; a Llama that sees both ways."""

from __future__ import annotations

from edgellm.arch.llama import build

__all__ = ["CAUSAL", "build"]

CAUSAL = False  # its files do not say it
