"""exaone: EXAONE 3, 3.5 and Deep; Llama with rotated halves, as qwen2 has them, and rope factors."""

from __future__ import annotations

from edgellm.arch.qwen2 import build

__all__ = ["build"]
