"""mistral4: Mistral Small 4; the graph of deepseek2."""

from __future__ import annotations

from edgellm.arch.deepseek2 import build

__all__ = ["build"]
