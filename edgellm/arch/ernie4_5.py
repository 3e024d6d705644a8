"""ernie4_5: ERNIE 4.5 dense; llama under another name."""

from __future__ import annotations

from edgellm.arch.blocks.decoder import decoder

build = decoder("norm")
