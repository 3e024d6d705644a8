"""Variants of Gemma 3n and Gemma 4: see variants.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tiny_gemmas import WIDTH
from variant import Variant

SLIDING, FULL = "sliding_attention", "full_attention"
_ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0},
}
_GEMMA4 = {
    "sliding_window": 8,
    "final_logit_softcapping": 3.0,
    "rope_parameters": _ROPES,
    "global_head_dim": 32,
    "vocab_size_per_layer_input": 96,
}


def _without_rows(experts: int) -> Variant:
    """Of 26B-A4B and 31B: no rows per layer; layers that see everything have one head of keys, which are its values, too."""
    tensors: dict[str, Any] = {f"per_layer_{name}.weight": None for name in ("token_embd", "model_proj", "proj_norm")}
    tensors |= {f"blk.{layer}.{name}.weight": None for layer in range(2) for name in ("inp_gate", "proj", "post_norm")}
    tensors |= {"blk.1.attn_v.weight": None, "blk.1.attn_k.weight": np.cos(np.arange(32 * 64) ** 1.5).reshape(32, 64) * 0.2}
    routing = {"enable_moe_block": True, "num_experts": experts, "top_k_experts": 2, "moe_intermediate_size": 48} if experts else {}
    return Variant(
        "gemma4",
        "Gemma4",
        {"tied": True, "n_experts": experts},
        {"{arch}.embedding_length_per_layer_input": 0, "{arch}.attention.head_count_kv": [2, 1]},
        tensors,
        _GEMMA4
        | {
            "hidden_size_per_layer_input": 0,
            "layer_types": [SLIDING, FULL],
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        }
        | routing,
    )


def _gemma3n(n_layers: int, shared: int) -> Variant:
    ropes = {SLIDING: {"rope_type": "default", "rope_theta": 10000.0}, FULL: {"rope_type": "default", "rope_theta": 1e6}}
    return Variant(
        "gemma3n",
        "Gemma3n",
        {"n_layers": n_layers, "tied": True, "rope_base": 1e6},
        config={
            "sliding_window": 8,
            "final_logit_softcapping": 3.0,
            "rope_parameters": ropes,
            "vocab_size_per_layer_input": 96,
            "hidden_size_per_layer_input": WIDTH,
            "layer_types": ([SLIDING, FULL] * n_layers)[:n_layers],
            "laurel_rank": 8,
            "num_kv_shared_layers": shared,
            "activation_sparsity_pattern": [0.0 if i % 3 == 2 else 0.8 for i in range(n_layers)],
        },
    )


VARIANTS: Mapping[str, Variant] = {
    "gemma3n": _gemma3n(5, 2),
    "gemma3n-own-keys": _gemma3n(3, 0),
    "gemma4": Variant(
        "gemma4",
        "Gemma4",
        {"n_layers": 6, "tied": True},
        config=_GEMMA4
        | {
            "hidden_size_per_layer_input": WIDTH,
            "layer_types": [SLIDING, FULL] * 3,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
        },
    ),
    "gemma4-31b": _without_rows(0),
    "gemma4-26b-a4b": _without_rows(6),
}
