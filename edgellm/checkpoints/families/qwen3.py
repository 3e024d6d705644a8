"""Qwen3, dense, and its rerankers."""

from __future__ import annotations

from edgellm.checkpoints.families._answering import rerankers, reranking
from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families.qwen2 import windows

FAMILIES = (
    Family("qwen3", ("qwen3",), INNER, refuses=windows, instead=lambda config: reranking(config, "qwen3")),
    *rerankers("qwen3", "qwen3", refuses=windows),
)
