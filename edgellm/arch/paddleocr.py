"""paddleocr: PaddleOCR-VL (text); qwen2 without biases."""

from __future__ import annotations

from edgellm.arch.qwen2 import build

__all__ = ["build"]
