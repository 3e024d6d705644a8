"""Experts in models most of whose layers slide: Trinity and K-EXAONE."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # of parsed JSON

from ._family import Family
from .routed import BIAS, SHARED, SIGMOID

Config = Mapping[str, Any]
TRINITY = SHARED | {"post_attention_layernorm": "post_attention_norm", "pre_mlp_layernorm": "ffn_norm",
                    "post_mlp_layernorm": "post_ffw_norm", "self_attn.gate_proj": "attn_gate", "mlp.router.gate": "ffn_gate_inp"}


def trinity(config: Config) -> dict[str, object]:
    return {"expert_count": config.get("num_experts"), "expert_used_count": config.get("num_experts_per_tok"),
            "expert_shared_count": config.get("num_shared_experts"), "expert_gating_func": SIGMOID,
            "leading_dense_block_count": config.get("num_dense_layers"),
            "expert_feed_forward_length": config.get("moe_intermediate_size"), "expert_weights_norm": True,
            "expert_weights_scale": config.get("route_scale")}


def k_exaone(config: Config) -> dict[str, object]:
    n, width = config.get("num_shared_experts") or 0, config["moe_intermediate_size"]
    return {"expert_count": config.get("num_experts"), "expert_used_count": config.get("num_experts_per_tok"),
            "expert_shared_count": n, "expert_gating_func": SIGMOID,
            "leading_dense_block_count": config.get("first_k_dense_replace", config.get("first_last_k_dense_replace")),
            "expert_feed_forward_length": width, "expert_shared_feed_forward_length": n * width,
            "expert_weights_norm": bool(config.get("norm_topk_prob", True)),
            "expert_weights_scale": config.get("routed_scaling_factor"),
            "expert_group_count": config.get("n_group"), "expert_group_used_count": config.get("topk_group")}


def dense_first(config: Config) -> str:
    """Layers without experts come first, all others have them."""
    kinds = config.get("mlp_layer_types")
    first = config.get("first_k_dense_replace", config.get("first_last_k_dense_replace", 0))
    usual = [("dense" if layer < first else "sparse") for layer in range(config["num_hidden_layers"])]
    return "" if kinds in (None, usual) else "mlp_layer_types"


FAMILIES = (
    Family("afmoe", ("afmoe",), TRINITY, bare={"mlp.expert_bias": "exp_probs_b.bias"}, keys=trinity, slides=True,
           defaults={"mup_enabled": False},
           only={"mup_enabled": (True,), "score_func": ("sigmoid",), "route_norm": (True,), "n_group": (1,)}),
    Family("exaone-moe", ("exaone_moe",), SHARED, keys=k_exaone, slides=True, refuses=dense_first,
           bare=BIAS | {"mlp.e_score_correction_bias": "exp_probs_b.bias"},
           only={"scoring_func": ("sigmoid",)}),
)
