"""codeshell: CodeShell; starcoder2 with one matrix for queries, keys and values."""

from __future__ import annotations

from edgellm.arch import starcoder2
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, g: Builder) -> None:
    """Blocks of starcoder2."""
    starcoder2.build(keys, g, fused=True)
