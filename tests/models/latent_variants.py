"""Variants with latent attention: see variants.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tiny_draw import Draw
from tiny_latent import KDA, LATENT, PLAIN, Q_LATENT, TURNED, VALUE
from variant import Variant

HEADS, WIDTH = 4, 64
_COMMON = {
    "kv_lora_rank": LATENT,
    "q_lora_rank": None,
    "qk_nope_head_dim": PLAIN,
    "qk_rope_head_dim": TURNED,
    "v_head_dim": VALUE,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_shared_experts": 1,
    "num_key_value_heads": HEADS,
    "rms_norm_eps": 1e-6,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
_YARN_KEYS = {
    "{arch}.rope.scaling.type": "yarn",
    "{arch}.rope.scaling.factor": 8.0,
    "{arch}.rope.scaling.yarn_beta_fast": 32.0,
    "{arch}.rope.scaling.original_context_length": 16,
    "{arch}.rope.scaling.yarn_beta_slow": 1.0,
    "{arch}.rope.scaling.yarn_log_multiplier": 0.0707,
}
_NO_SHORT_QUERIES = {"{arch}.attention.q_lora_rank": 0}  # files say nothing; llama.cpp knows those without by their 27 layers
_SIZES = {"n_kv_heads": HEADS, "eps": 1e-6}


def _of_short_queries(layers: int) -> dict[str, Any]:
    """Queries made of a short row, too."""
    draw, found = Draw(np.random.default_rng(3)), dict[str, Any]()
    for layer in range(layers):
        block = f"blk.{layer}"
        found |= {
            f"{block}.attn_q.weight": None,
            f"{block}.attn_q_a.weight": draw.matrix(Q_LATENT, WIDTH),
            f"{block}.attn_q_a_norm.weight": draw.vector(Q_LATENT),
            f"{block}.attn_q_b.weight": draw.matrix(HEADS * (PLAIN + TURNED), Q_LATENT),
        }
    return found


def _many_experts(layers: int, *, biased: bool) -> dict[str, Any]:
    """Eight of them, in groups of two."""
    draw, found = Draw(np.random.default_rng(4)), dict[str, Any]()
    for layer in range(1, layers):
        block = f"blk.{layer}"
        found[f"{block}.ffn_gate_inp.weight"] = draw.matrix(8, WIDTH)
        found |= {
            f"{block}.ffn_{part}_exps.weight": np.stack([draw.matrix(*size) for _ in range(8)])
            for part, size in (("gate", (48, WIDTH)), ("up", (48, WIDTH)), ("down", (WIDTH, 48)))
        }
        if biased:
            found[f"{block}.exp_probs_b.bias"] = draw.vector(8, mean=0.0)
    return found


def _older() -> Variant:
    """One matrix for what keys and values are made of: a head has keys and values of its own."""
    draw, tensors = Draw(np.random.default_rng(5)), dict[str, Any]()
    for layer in range(2):
        block = f"blk.{layer}"
        tensors |= {
            f"{block}.attn_k_b.weight": None,
            f"{block}.attn_v_b.weight": None,
            f"{block}.attn_kv_b.weight": draw.matrix(HEADS * (PLAIN + VALUE), LATENT),
        }
    keys = (
        _YARN_KEYS
        | _NO_SHORT_QUERIES
        | {
            "{arch}.attention.head_count_kv": HEADS,
            "{arch}.attention.key_length": PLAIN + TURNED,
            "{arch}.attention.value_length": VALUE,
            "{arch}.attention.key_length_mla": None,
            "{arch}.attention.value_length_mla": None,
        }
    )
    return Variant("deepseek2", "DeepseekV2", _SIZES, keys, tensors, _COMMON | {"rope_parameters": _YARN})


_GROUPS = {
    "{arch}.expert_count": 8,
    "{arch}.expert_used_count": 3,
    "{arch}.expert_group_count": 4,
    "{arch}.expert_group_used_count": 2,
    "{arch}.attention.q_lora_rank": Q_LATENT,
}
_HF_GROUPS = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "q_lora_rank": Q_LATENT}
_SIGMOID = {"{arch}.expert_gating_func": 2, "{arch}.expert_weights_norm": True, "{arch}.expert_weights_scale": 2.5}
_DRAFTING = {
    f"blk.2.nextn.{name}.weight": np.ones(size)
    for name, size in (("eh_proj", (WIDTH, 2 * WIDTH)), ("enorm", WIDTH), ("hnorm", WIDTH), ("shared_head_norm", WIDTH))
}
_MINICPM3 = {
    "kv_lora_rank": LATENT,
    "q_lora_rank": Q_LATENT,
    "qk_nope_head_dim": PLAIN,
    "qk_rope_head_dim": TURNED,
    "num_key_value_heads": HEADS,
}
VARIANTS: Mapping[str, Variant] = {
    "plm": Variant(
        "plm", "DeepseekV2", _SIZES | {"tied": True}, config=_COMMON | {"first_k_dense_replace": 2, "hidden_act": "relu"}
    ),
    "mistral4": Variant(
        "mistral4",
        "Mistral4",
        _SIZES,
        _GROUPS
        | _YARN_KEYS
        | {
            "{arch}.rope.scaling.yarn_log_multiplier": 0.1,
            "{arch}.expert_group_count": None,
            "{arch}.expert_group_used_count": None,
            "{arch}.expert_gating_func": 1,
            "{arch}.expert_weights_norm": True,
            "{arch}.attention.temperature_scale": 0.3,
            "{arch}.attention.temperature_length": 16,
        },
        _of_short_queries(2) | _many_experts(2, biased=False),
        _COMMON
        | {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "q_lora_rank": Q_LATENT,
            "norm_topk_prob": True,
            "head_dim": 48,
            "rope_parameters": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3},
        },
    ),
    "kimi-linear": Variant(
        "kimi-linear",
        "KimiLinear",
        {"n_layers": 4, "n_kv_heads": HEADS},
        config=_COMMON
        | {
            "num_local_experts": 4,
            "rms_norm_eps": 1e-5,
            "routed_scaling_factor": 2.5,
            "linear_head_dim": KDA,
            "linear_num_heads": HEADS,
            "mlp_layer_types": ["dense", *["sparse"] * 3],
            "layer_types": ["linear_attention", "full_attention"] * 2,
        },
    ),
    "minicpm3": Variant("minicpm3", "MiniCPM3", {"tied": True}, config=_MINICPM3),
    "deepseek2-lite": Variant(
        "deepseek2", "DeepseekV2", _SIZES, _YARN_KEYS | _NO_SHORT_QUERIES, config=_COMMON | {"rope_parameters": _YARN}
    ),
    "deepseek2-older": _older(),
    "deepseek2": Variant(
        "deepseek2",
        "DeepseekV2",
        _SIZES | {"n_layers": 3},
        _GROUPS | {"{arch}.expert_weights_scale": 16.0},
        _of_short_queries(3) | _many_experts(3, biased=False),
        _COMMON | _HF_GROUPS | {"topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0},
    ),
    "deepseek3": Variant(
        "deepseek2",
        "DeepseekV3",
        _SIZES,
        _GROUPS | _SIGMOID | _YARN_KEYS | {"{arch}.rope.scaling.yarn_log_multiplier": 0.1},
        _of_short_queries(2) | _many_experts(2, biased=True),
        _COMMON
        | _HF_GROUPS
        | {"norm_topk_prob": True, "routed_scaling_factor": 2.5, "rope_parameters": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
    "glm4.7-flash": Variant(
        "deepseek2",
        "Glm4MoeLite",
        _SIZES | {"n_layers": 3},
        {
            "{arch}.expert_count": 8,
            "{arch}.expert_weights_norm": True,
            "{arch}.expert_weights_scale": 1.8,
            "{arch}.attention.q_lora_rank": Q_LATENT,
            "{arch}.nextn_predict_layers": 1,
        },
        _of_short_queries(3) | _many_experts(3, biased=True) | _DRAFTING,
        _COMMON
        | {
            "n_routed_experts": 8,
            "q_lora_rank": Q_LATENT,
            "num_hidden_layers": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.8,
        },
        drafts=("blk.2.",),
    ),
}
