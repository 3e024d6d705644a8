"""lfm2moe: LFM2 with experts; the graph of lfm2."""

from __future__ import annotations

from edgellm.arch.lfm2 import build

__all__ = ["build"]
