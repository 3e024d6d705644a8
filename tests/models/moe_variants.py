"""Variants with experts: see variants.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tiny_draw import Draw
from variant import PEER, Variant


def _drafting(layer: int) -> dict[str, Any]:
    """K-EXAONE's layer that drafts tokens, without experts."""
    block, n, wide = f"blk.{layer}", 64, 96
    experts = ("ffn_gate_inp", *(f"ffn_{part}_{kind}" for part in ("gate", "up", "down") for kind in ("exps", "shexp")))
    shapes = {
        "ffn_gate": (wide, n),
        "ffn_up": (wide, n),
        "ffn_down": (n, wide),
        "nextn.eh_proj": (n, 2 * n),
        "nextn.enorm": n,
        "nextn.hnorm": n,
        "nextn.shared_head_norm": n,
    }
    return (
        {f"{block}.{name}.weight": None for name in experts}
        | {f"{block}.exp_probs_b.bias": None}
        | {f"{block}.{name}.weight": np.ones(shape) for name, shape in shapes.items()}
    )


_GRANITE_SWA = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.2,
    "logits_scaling": 4.0,
    "sliding_window": 8,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
    "layer_rope_theta": [10000.0, 0.0, 10000.0, 10000.0, 0.0],
}
_LLAMA4 = {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 96}
ONE = {"num_hidden_layers": 2, "moe_intermediate_size": 96, "num_experts_per_tok": 2}
KINDS = ["full_attention", "sliding_attention"] * 2
_HALVES = {
    kind: {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}
    for kind, base, share in (("full_attention", 10000.0, 0.5), ("sliding_attention", 5000.0, 1.0))
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
_YARN_KEYS = {
    "{arch}.rope.scaling.type": "yarn",
    "{arch}.rope.scaling.factor": 8.0,
    "{arch}.rope.scaling.original_context_length": 16,
}
_FACTORS = np.array([1.0, 1.7, 2.5, 4.0, *[1.0] * 4])  # of which only the first half counts
_SCALED = {"{arch}.expert_weights_scale": 2.5, "{arch}.expert_weights_norm": True}
_LAGUNA = ONE | {
    "num_hidden_layers": 4,
    "num_experts": 4,
    "shared_expert_intermediate_size": 96,
    "sliding_window": 8,
    "layer_types": KINDS,
    "num_attention_heads_per_layer": [4, 8, 4, 8],
    "mlp_layer_types": ["dense", *["sparse"] * 3],
    "moe_routed_scaling_factor": 2.5,
    "rope_parameters": _HALVES | {"full_attention": _YARN | {"partial_rotary_factor": 0.5}},
}


def _nextn(layer: int) -> dict[str, Any]:
    """The tensors of a drafting layer beside those of others."""
    shapes = {"eh_proj": (64, 128), "enorm": 64, "hnorm": 64, "shared_head_norm": 64}
    return {f"blk.{layer}.nextn.{name}.weight": np.ones(shape) for name, shape in shapes.items()}


def _wide_gates() -> dict[str, Any]:
    """A gate for each column, as Laguna M.1 has them."""
    draw = Draw(np.random.default_rng(14))
    return {f"blk.{layer}.attn_gate.weight": draw.matrix(16 * (8 if layer % 2 else 4), 64) for layer in range(4)}


VARIANTS: Mapping[str, Variant] = {
    "step35": Variant(
        "step35",
        "Step3p7",
        {"n_layers": 4, "n_dense": 1},
        _SCALED,
        config=ONE
        | {
            "num_hidden_layers": 4,
            "n_routed_experts": 4,
            "share_expert_dim": 96,
            "sliding_window": 8,
            "layer_types": KINDS,
            "num_sliding_attention_heads": 8,
            "mlp_layer_types": ["dense", *["sparse"] * 3],
            "moe_router_scaling_factor": 2.5,
            "swiglu_limits": [0.0, 0.0, 0.0, 0.4],
            "swiglu_limits_shared": [0.0, 0.0, 0.0, 0.6],
            "rope_parameters": _HALVES,
        },
    ),
    "step35-factors": Variant("step35", PEER, {"n_layers": 2, "n_dense": 1}, _SCALED, {"rope_freqs.weight": _FACTORS}),
    "step35-drafting": Variant(
        "step35", PEER, {"n_layers": 4, "n_dense": 1}, _SCALED | {"{arch}.nextn_predict_layers": 1}, _nextn(3), drafts=("blk.3.",)
    ),
    "hy_v3-drafting": Variant(
        "hy_v3", PEER, {"n_layers": 3, "n_dense": 1}, _SCALED | {"{arch}.nextn_predict_layers": 1}, _nextn(2), drafts=("blk.2.",)
    ),
    "cohere2moe-drafting": Variant(
        "cohere2moe",
        PEER,
        {"n_layers": 3, "n_dense": 1},
        {
            "{arch}.expert_weights_norm": True,
            "{arch}.nextn_predict_layers": 1,
            "{arch}.attention.sliding_window_pattern": [False, True, False],
        },
        _nextn(2),
        drafts=("blk.2.",),
    ),
    "laguna": Variant("laguna", "Laguna", {"n_layers": 4, "n_dense": 1}, _SCALED | _YARN_KEYS, config=_LAGUNA),
    "laguna-wide": Variant(
        "laguna", "Laguna", {"n_layers": 4, "n_dense": 1}, _SCALED | _YARN_KEYS, _wide_gates(), _LAGUNA | {"gating": "per-element"}
    ),
    "mellum": Variant(
        "mellum",
        "Mellum",
        {"n_layers": 4},
        _YARN_KEYS | {"{arch}.attention.sliding_window_pattern": [False, True, False, True]},
        config=ONE
        | {
            "num_hidden_layers": 4,
            "num_experts": 4,
            "norm_topk_prob": True,
            "sliding_window": 8,
            "layer_types": KINDS,
            "rope_parameters": {"full_attention": _YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        },
    ),
    "hy_v3": Variant(
        "hy_v3",
        "HYV3",
        {"n_layers": 3, "n_dense": 1},
        _SCALED,
        config=ONE | {"num_hidden_layers": 3, "num_experts": 4, "num_shared_experts": 1, "router_scaling_factor": 2.5},
    ),
    "cohere2moe": Variant(
        "cohere2moe",
        "Cohere2Moe",
        {"n_layers": 5, "n_dense": 1, "tied": True},
        {"{arch}.expert_weights_norm": True},
        config=ONE
        | {
            "num_hidden_layers": 5,
            "intermediate_size": 96,
            "num_experts": 4,
            "num_shared_experts": 2,
            "logit_scale": 0.3,
            "layer_norm_eps": 1e-5,
            "rms_norm_eps": None,
            "expert_selection_fn": "sigmoid",
            "norm_topk_prob": True,
            "first_k_dense_replace": 1,
            "prefix_dense_intermediate_size": 96,
            "sliding_window": 8,
            "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
        },
    ),
    "deepseek2-ocr": Variant(
        "deepseek2-ocr",
        "Qwen2Moe",
        {"n_kv_heads": 4, "n_dense": 1, "n_layers": 3},
        config=ONE
        | {
            "num_hidden_layers": 3,
            "num_experts": 4,
            "shared_expert_intermediate_size": 192,
            "mlp_only_layers": [0],
            "qkv_bias": False,
        },
    ),
    "dbrx": Variant("dbrx", PEER),
    "arctic": Variant("arctic", PEER, {"n_layers": 3}),
    "grovemoe": Variant(
        "grovemoe",
        "Qwen3Moe",
        {"n_experts": 8, "n_used": 3},
        config=ONE | {"num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True},
    ),
    "maple": Variant(
        "maple",
        PEER,
        {"n_layers": 4},
        {"{arch}.swiglu_clamp_exp": [0.6] * 4, "{arch}.attention.sliding_window_pattern": [True, False] * 2},
    ),
    "bailingmoe": Variant(
        "bailingmoe",
        "Qwen2Moe",
        metadata={"{arch}.expert_weights_norm": True},
        config=ONE | {"num_experts": 4, "shared_expert_intermediate_size": 192, "qkv_bias": False, "norm_topk_prob": True},
    ),
    "mixtral": Variant("llama", "Mixtral", {"n_experts": 6}, config={"num_local_experts": 6, "sliding_window": None}),
    "qwen3moe": Variant("qwen3moe", "Qwen3Moe", config=ONE | {"num_experts": 4, "norm_topk_prob": True}),
    "qwen3vlmoe": Variant(
        "qwen3vlmoe",
        "Qwen3VLMoe",
        config=ONE
        | {"num_experts": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}},
    ),
    "bailingmoe2": Variant(
        "bailingmoe2",
        "Glm4Moe",
        {"n_dense": 1, "n_rot": 8, "n_experts": 8},
        {
            "{arch}.expert_group_count": 4,
            "{arch}.expert_group_used_count": 2,
            "{arch}.expert_weights_scale": 2.5,
            "{arch}.expert_weights_norm": True,
        },
        config=ONE
        | {
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "use_qk_norm": True,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "attention_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "qwen2moe": Variant("qwen2moe", "Qwen2Moe", config=ONE | {"num_experts": 4, "shared_expert_intermediate_size": 96}),
    "deepseek": Variant(
        "deepseek",
        "Qwen2Moe",
        {"n_dense": 1},
        config=ONE | {"num_experts": 4, "shared_expert_intermediate_size": 192, "mlp_only_layers": [0], "qkv_bias": False},
    ),
    "afmoe": Variant(
        "afmoe",
        "Afmoe",
        {"n_layers": 4, "n_dense": 1},
        {"{arch}.expert_weights_scale": 2.5, "{arch}.expert_weights_norm": True},
        config=ONE
        | {
            "num_hidden_layers": 4,
            "num_dense_layers": 1,
            "num_experts": 4,
            "num_shared_experts": 1,
            "route_scale": 2.5,
            "sliding_window": 8,
            "mup_enabled": True,
        },
    ),
    "exaone-moe": Variant(
        "exaone-moe",
        "ExaoneMoe",
        {"n_layers": 5, "n_dense": 1},
        {
            "{arch}.expert_weights_scale": 2.5,
            "{arch}.nextn_predict_layers": 1,
            "{arch}.expert_weights_norm": True,
            "{arch}.attention.sliding_window_pattern": [True, True, True, False],
        },
        _drafting(4),
        ONE
        | {
            "num_hidden_layers": 4,
            "num_experts": 4,
            "num_shared_experts": 1,
            "routed_scaling_factor": 2.5,
            "sliding_window": 8,
            "sliding_window_pattern": 4,
            "first_k_dense_replace": 1,
        },
        drafts=("blk.4.",),
    ),
    "mimo2": Variant(
        "mimo2",
        "MiMoV2Flash",
        {"n_layers": 4, "n_dense": 1},
        config=ONE
        | {
            "num_hidden_layers": 4,
            "n_routed_experts": 4,
            "v_head_dim": 8,
            "attention_value_scale": 0.7,
            "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": 0.5}
                for kind, base in (("full_attention", 10000.0), ("sliding_attention", 5000.0))
            },
        },
    ),
    "llama4": Variant(
        "llama4",
        "Llama4",
        {"n_layers": 5, "n_used": 1},
        config=_LLAMA4 | {"num_hidden_layers": 5, "attention_chunk_size": 8, "floor_scale": 16},
    ),
    "llama4-maverick": Variant(
        "llama4",
        "Llama4",
        {"n_layers": 4, "n_experts": 128, "n_dense": 3},
        {
            "{arch}.interleave_moe_layer_step": 4,
            "{arch}.leading_dense_block_count": None,
            "{arch}.attention.sliding_window": None,
            "{arch}.attention.temperature_length": None,
        },
        config=_LLAMA4
        | {
            "num_hidden_layers": 4,
            "num_local_experts": 128,
            "num_experts_per_tok": 2,
            "interleave_moe_layer_step": 4,
            "use_qk_norm": False,
        },
    ),
    "smallthinker": Variant("smallthinker", PEER, {"n_layers": 5}, {"{arch}.attention.sliding_window": 4096}),
    "phimoe": Variant(
        "phimoe",
        "Phimoe",
        config={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "lm_head_bias": True,
            "sliding_window": None,
        },
    ),
    "olmoe": Variant("olmoe", "Olmoe", {"n_kv_heads": 4}, config=ONE | {"num_experts": 4}),
    "minimax-m2": Variant(
        "minimax-m2",
        "MiniMaxM2",
        {"n_rot": 8, "n_experts": 8, "n_used": 3},
        config={
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "hunyuan-moe": Variant("hunyuan-moe", "HunYuanMoEV1", config={"num_experts": 4, "moe_topk": 2}),
    "dots1": Variant(
        "dots1",
        "Dots1",
        {"n_dense": 1, "n_experts": 8},
        {
            "{arch}.expert_group_count": 4,
            "{arch}.expert_group_used_count": 2,
            "{arch}.expert_weights_scale": 2.5,
            "{arch}.expert_weights_norm": True,
        },
        config=ONE
        | {
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
        },
    ),
    "glm4moe": Variant(
        "glm4moe",
        "Glm4Moe",
        {"n_dense": 1, "n_rot": 8},
        {"{arch}.expert_weights_scale": 1.5},
        {f"blk.{layer}.attn_{part}_norm.weight": [1.0 + 0.05 * i for i in range(16)] for layer in range(2) for part in "qk"},
        ONE
        | {
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "use_qk_norm": True,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "attention_bias": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "granitemoe": Variant(
        "granitemoe",
        "GraniteMoe",
        config={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 4.0,
        },
    ),
    "granite_swa": Variant("granite_swa", "GraniteSWA", {"n_layers": 5, "tied": True}, config=_GRANITE_SWA),
    "granite_swa-experts": Variant(
        "granite_swa",
        "GraniteMoeSWA",
        {"n_layers": 5, "n_experts": 4},
        config=_GRANITE_SWA | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 96},
    ),
    "gpt-oss": Variant(
        "gpt-oss",
        "GptOss",
        {"n_used": 2},
        config={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "num_hidden_layers": 2,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 8.0,
                "original_max_position_embeddings": 16,
                "rope_theta": 10000.0,
                "truncate": False,
            },
        },
    ),
    "ernie4_5-moe": Variant(
        "ernie4_5-moe",
        "Ernie4_5_Moe",
        {"n_layers": 3, "n_dense": 1},
        config=ONE
        | {
            "num_hidden_layers": 3,
            "moe_num_experts": 4,
            "moe_num_shared_experts": 2,
            "moe_k": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": 2,
        },
    ),
}
