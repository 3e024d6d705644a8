"""Latent attention of others than DeepSeek: MiniCPM3, whose keys and values are made by one matrix, and Mistral Small 4."""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any  # of parsed JSON

from ._family import Family
from ._pieces import Piece, half
from .llama import ministral
from .routed import KEYS_AND_VALUES, LATENT, SOFTMAX, latent, one_magnitude

Config = Mapping[str, Any]
EMBEDDING, DEPTH, WIDTH = 12, 1.4, 256           # what the graph has

PACKED = {"mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight", "mlp.experts.down_proj": "ffn_down_exps.weight"}
BOTH = (Piece("ffn_gate_exps", half(0)), Piece("ffn_up_exps", half(1)))


def minicpm3(config: Config) -> dict[str, object]:
    turned = config["qk_rope_head_dim"]
    return {"attention.q_lora_rank": config.get("q_lora_rank"), "attention.kv_lora_rank": config.get("kv_lora_rank"),
            "attention.key_length": config["qk_nope_head_dim"] + turned, "attention.value_length": config.get("v_head_dim"),
            "rope.dimension_count": turned}


def mistral4(config: Config) -> dict[str, object]:
    """As deepseek2 has them, and queries that grow with their position."""
    growth = ministral(config)["attention.temperature_scale"]
    return latent(config) | {"attention.temperature_scale": growth, "expert_gating_func": SOFTMAX}


def depth(config: Config) -> str:
    return "" if math.isclose(config.get("scale_depth") or 0, DEPTH) else "scale_depth"


FAMILIES = (
    Family("mistral4", ("mistral4",), LATENT, keys=mistral4, refuses=one_magnitude, bare=PACKED,
           pieces={"attn_kv_b": KEYS_AND_VALUES, "ffn_gate_up_exps": BOTH},
           only={"rope_interleave": (True,), "n_group": (1,), "moe_layer_freq": (1,)}),
    Family("minicpm3", ("minicpm3",), LATENT, keys=minicpm3, refuses=depth,
           defaults={"scale_depth": DEPTH}, only={"scale_emb": (EMBEDDING,), "dim_model_base": (WIDTH,)}),
)
