"""deepseek2-ocr: DeepSeek-OCR (text); deepseek with rotated halves."""

from __future__ import annotations

from edgellm.arch import deepseek
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, g: Builder) -> None:
    """Blocks of deepseek."""
    deepseek.build(keys, g, style="neox")
