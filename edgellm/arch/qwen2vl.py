"""qwen2vl: Qwen2-VL and Qwen2.5-VL without images: where all of a token's positions are the same, M-RoPE is qwen2's rotation."""

from __future__ import annotations

from edgellm.arch.qwen2 import build

__all__ = ["build"]
