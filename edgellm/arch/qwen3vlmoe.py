"""qwen3vlmoe: Qwen3-VL with experts, without images; the graph of qwen3moe."""

from __future__ import annotations

from edgellm.arch.qwen3moe import build

INTERLEAVED_AXES = True
__all__ = ["INTERLEAVED_AXES", "build"]
