"""Llama 1-3.3, Mistral and the many models of that shape, some under other names."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # of parsed JSON

from ._family import INNER, Family


def every_fourth(config: Mapping[str, Any]) -> str:
    """SmolLM3's graph leaves every fourth layer unrotated; `no_rope_layers` has a 1 for those that are rotated."""
    rotated = config.get("no_rope_layers")
    usual = [int((layer + 1) % 4 != 0) for layer in range(len(rotated))] if isinstance(rotated, list) else rotated
    return "" if rotated is None or rotated == usual else "no_rope_layers"


FAMILIES = (
    Family("llama", ("llama",), INNER, paired_rows=True),
    Family("llama", ("mistral",), INNER, paired_rows=True, slides=True),
    Family("arcee", ("arcee",), INNER, activations=("relu2",), paired_rows=True),
    Family("ernie4_5", ("ernie4_5",), INNER),
    Family("seed_oss", ("seed_oss",), INNER | {"post_attention_layernorm": "post_attention_norm"}),
    Family("smollm3", ("smollm3",), INNER, paired_rows=True, refuses=every_fourth),
)
