"""lfm2moe: LFM2 with experts; all else as lfm2 has it."""

from __future__ import annotations

from edgellm.arch.lfm2 import build

__all__ = ["build"]
