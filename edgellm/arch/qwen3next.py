"""qwen3next: Qwen3-Next; as qwen35moe, but heads of values that follow each other share queries and keys."""

from __future__ import annotations

from edgellm.arch import qwen35moe
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, g: Builder) -> None:
    """Blocks of qwen35moe with grouped heads."""
    qwen35moe.build(keys, g, grouped=True)
