"""gemma-embedding: EmbeddingGemma; Gemma 3 that sees both ways, with dense layers behind the pooling."""

from __future__ import annotations

from edgellm.arch.gemma3 import build

__all__ = ["CAUSAL", "build"]

CAUSAL = False  # its files do not say it
