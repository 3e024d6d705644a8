"""mistral4: Mistral Small 4; what deepseek2 is."""

from __future__ import annotations

from edgellm.arch.deepseek2 import build

__all__ = ["build"]
