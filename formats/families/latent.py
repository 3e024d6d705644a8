"""MiniCPM3: latent attention, in files whose keys and values are made by one matrix."""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any  # of parsed JSON

from ._family import Family
from .routed import LATENT

Config = Mapping[str, Any]
EMBEDDING, DEPTH, WIDTH = 12, 1.4, 256           # what the graph has


def minicpm3(config: Config) -> dict[str, object]:
    turned = config["qk_rope_head_dim"]
    return {"attention.q_lora_rank": config.get("q_lora_rank"), "attention.kv_lora_rank": config.get("kv_lora_rank"),
            "attention.key_length": config["qk_nope_head_dim"] + turned, "attention.value_length": config.get("v_head_dim"),
            "rope.dimension_count": turned}


def depth(config: Config) -> str:
    return "" if math.isclose(config.get("scale_depth") or 0, DEPTH) else "scale_depth"


FAMILIES = (
    Family("minicpm3", ("minicpm3",), LATENT, keys=minicpm3, refuses=depth,
           defaults={"scale_depth": DEPTH}, only={"scale_emb": (EMBEDDING,), "dim_model_base": (WIDTH,)}),
)
