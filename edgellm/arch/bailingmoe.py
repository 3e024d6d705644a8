"""bailingmoe: Ling and Ring 1; deepseek under another name."""

from __future__ import annotations

from edgellm.arch.deepseek import build

__all__ = ["build"]
