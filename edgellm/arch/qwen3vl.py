"""qwen3vl: Qwen3-VL: where all of a token's positions are the same, M-RoPE is qwen3's rotation."""

from __future__ import annotations

from edgellm.arch.qwen3 import build

INTERLEAVED_AXES = True
__all__ = ["INTERLEAVED_AXES", "build"]
