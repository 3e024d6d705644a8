"""starcoder: StarCoder 1 and SantaCoder; gpt2 with one head of keys."""

from __future__ import annotations

from edgellm.arch.gpt2 import build

__all__ = ["build"]
