"""Embedding models whose float32 gold lies in tests/data/gold, made by tests/data/make_encoder_gold.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_models import tiny_model

# Windows of 8 and 16 to each side, past which the 80 tokens reach; the sixth layer of gemma-embedding sees everything.
SHAPE: dict[str, Any] = {"n_layers": 6, "window": 16, "rope_base": 160000.0, "tied": True}
POOLED = (
    "bert+cls",
    "eurobert+last",
    "gemma-embedding+mean",
    "jina-bert-v3+mean",
    "llama-embed+mean",
    "modern-bert+cls",
    "modern-bert+mean",
    "neo-bert+cls",
    "nomic-bert+mean",
    "nomic-bert-moe+mean",
    "qwen3+last",
    "t5encoder+mean",
)
NUMBERS = {"mean": 1, "cls": 2, "last": 3}


def encoder_file(path: Path, name: str) -> Path:
    """The model file of a variant: architecture+pooling."""
    arch, pooling = name.split("+")
    sizes = SHAPE | ({"window": 0} if arch == "qwen3" else {})
    return tiny_model(path, arch, seed=7, metadata={"{arch}.pooling_type": NUMBERS[pooling]}, **sizes)
