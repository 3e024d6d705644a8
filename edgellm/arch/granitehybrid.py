"""granitehybrid: Granite 4.0 h, and Bamba; Mamba 2 layers beside those of granite, with experts or without."""

from __future__ import annotations

from edgellm.arch.granite import build

__all__ = ["build"]
