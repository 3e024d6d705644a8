"""pangu-embedded: openPangu-Embedded; qwen2 with one more bias, behind attention."""

from __future__ import annotations

from edgellm.arch.qwen2 import build

__all__ = ["build"]
