"""internlm2: InternLM 2 and 2.5; all as llama has it, queries, keys and values split by the converter."""

from __future__ import annotations

from edgellm.arch.llama import build

__all__ = ["build"]
