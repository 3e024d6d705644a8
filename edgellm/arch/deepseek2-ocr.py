"""deepseek2-ocr: DeepSeek-OCR (text); deepseek with rotated halves."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch import deepseek
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of deepseek."""
    deepseek.build(keys, tensors, g, style="neox")
