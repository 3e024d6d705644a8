"""xverse: XVERSE; what llama is."""

from __future__ import annotations

from edgellm.arch.llama import build

__all__ = ["build"]
