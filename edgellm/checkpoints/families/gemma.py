"""Gemma 1 and 2; norms stored less 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # of parsed JSON

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families.gemma3 import PARTS

ONE_WAY = {"use_bidirectional_attention": (False,)}
LAYERS_27B = 46  # of Gemma 2: the one size whose query scale is not 1/sqrt(head_dim)


def refuses(config: Mapping[str, Any]) -> str:
    """GGUF has no key for the scale of queries: it follows from the size."""
    heads, width = config.get("num_attention_heads"), config.get("hidden_size")
    usual = config.get("head_dim")
    if config.get("num_hidden_layers") == LAYERS_27B and isinstance(heads, int) and isinstance(width, int) and heads:
        usual = width // heads
    return "" if config.get("query_pre_attn_scalar") in (None, usual) else "query_pre_attn_scalar"


FAMILIES = (
    Family(
        "gemma",
        ("gemma",),
        INNER,
        activations=("gelu_pytorch_tanh", "gelu"),  # "gelu" meant the other
        norms_from_zero=True,
        only=ONE_WAY,
    ),
    Family(
        "gemma2",
        ("gemma2",),
        PARTS,
        activations=("gelu_pytorch_tanh",),
        norms_from_zero=True,
        slides=True,
        refuses=refuses,
        only=ONE_WAY,
    ),
)
