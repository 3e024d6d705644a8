"""internlm2: InternLM 2 and 2.5; the graph of llama; the converter splits queries, keys and values."""

from __future__ import annotations

from edgellm.arch.llama import build

__all__ = ["build"]
