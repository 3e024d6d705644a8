"""xverse: XVERSE; the graph of llama."""

from __future__ import annotations

from edgellm.arch.llama import build

__all__ = ["build"]
