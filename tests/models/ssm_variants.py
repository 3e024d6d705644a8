"""Variants with Mamba and Mamba 2 layers, and of lfm2moe: see variants.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tiny_draw import Draw
from tiny_models import Shape
from tiny_ssm import GROUPS, HEADS, INNER, STATE, mamba2
from variant import PEER, Variant

MAMBA2 = {"mamba_n_heads": HEADS, "mamba_d_head": INNER // HEADS, "mamba_d_state": STATE, "mamba_d_conv": 4, "mamba_expand": 2}
_MAMBA2 = {
    "num_heads": HEADS,
    "head_dim": INNER // HEADS,
    "state_size": STATE,
    "expand": 2,
    "conv_kernel": 4,
    "n_groups": GROUPS,
    "layer_norm_epsilon": 1e-5,
}
RECURRENT, FULL = "linear_attention", "full_attention"
_GRANITE = MAMBA2 | {
    "mamba_n_groups": 1,
    "layer_types": [FULL, RECURRENT, FULL],
    "position_embedding_type": None,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.2,
    "logits_scaling": 4.0,
}
_BAMBA = {f"{{arch}}.{key}": None for key in ("embedding_scale", "residual_scale", "attention.scale", "logit_scale")}
_FALCON = MAMBA2 | {"mamba_n_groups": GROUPS, "mamba_d_ssm": INNER, "mamba_norm_before_gate": False}
_NEMOTRON = {
    "mamba_num_heads": HEADS,
    "mamba_head_dim": INNER // HEADS,
    "ssm_state_size": STATE,
    "n_groups": GROUPS,
    "conv_kernel": 4,
    "layer_norm_epsilon": 1e-5,
    "mlp_hidden_act": "relu2",
    "time_step_min": 1e-30,
}
_NEMOTRON_MOE = _NEMOTRON | {
    "layers_block_type": [FULL, RECURRENT, "moe"],
    "n_routed_experts": 4,
    "moe_intermediate_size": 96,
    "num_experts_per_tok": 2,
    "moe_shared_expert_intermediate_size": 192,
    "n_shared_experts": 1,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
}
_SCALED = {"{arch}.expert_weights_scale": 2.5, "{arch}.expert_weights_norm": True, "{arch}.expert_group_count": 1}
_JAMBA = {
    "attn_layer_period": 2,
    "attn_layer_offset": 0,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 32,
}


def _one_group() -> Variant:
    """As llama-quantize writes one group, whose norm has one dimension then."""
    draw, tensors = Draw(np.random.default_rng(11)), dict[str, Any]()
    for layer in range(2):
        found = mamba2(draw, Shape(), 1)
        found["ssm_norm.weight"] = found["ssm_norm.weight"].reshape(-1)
        tensors |= {f"blk.{layer}.{name}": values for name, values in found.items()}
    return Variant("mamba2", "Mamba2", {"tied": True}, {"{arch}.ssm.group_count": 1}, tensors, _MAMBA2 | {"n_groups": 1})


def _normalised_falcon() -> dict[str, Any]:
    draw = Draw(np.random.default_rng(12))
    return {f"blk.{layer}.ssm_norm.weight": draw.vector(GROUPS, INNER // GROUPS) for layer in range(2)}


def _latent() -> dict[str, Any]:
    """Experts of 32 columns, between two more matrices."""
    draw = Draw(np.random.default_rng(13))
    return {
        "blk.2.ffn_latent_down.weight": draw.matrix(32, 64),
        "blk.2.ffn_latent_up.weight": draw.matrix(64, 32),
        "blk.2.ffn_up_exps.weight": np.stack([draw.matrix(96, 32) for _ in range(4)]),
        "blk.2.ffn_down_exps.weight": np.stack([draw.matrix(32, 96) for _ in range(4)]),
    }


VARIANTS: Mapping[str, Variant] = {
    "mamba2": Variant("mamba2", "Mamba2", config=_MAMBA2),
    "mamba2-one-group": _one_group(),
    "granitehybrid": Variant(
        "granitehybrid",
        "GraniteMoeHybrid",
        {"n_layers": 3},
        config=_GRANITE | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 96},
    ),
    "granitehybrid-dense": Variant(
        "granitehybrid",
        "GraniteMoeHybrid",
        {"n_layers": 3, "n_experts": 0, "tied": True},
        config=_GRANITE | {"num_local_experts": 0, "shared_intermediate_size": 96},
    ),
    "bamba": Variant(
        "granitehybrid",
        "Bamba",
        {"n_layers": 3, "n_experts": 0},
        _BAMBA | {"{arch}.rope.scaling.finetuned": True},
        config=MAMBA2
        | {
            "mamba_n_groups": 1,
            "attn_layer_indices": [0, 2],
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        },
    ),
    "falcon-h1": Variant("falcon-h1", "FalconH1", {"head_dim": 24}, config=_FALCON),
    "falcon-h1-norm": Variant(
        "falcon-h1", "FalconH1", {"tied": True}, tensors=_normalised_falcon(), config=_FALCON | {"mamba_rms_norm": True}
    ),
    "falcon-h1-no-bias": Variant(
        "falcon-h1",
        "FalconH1",
        tensors={f"blk.{layer}.ssm_conv1d.bias": None for layer in range(2)},
        config=_FALCON | {"mamba_conv_bias": False},
    ),
    "nemotron_h": Variant(
        "nemotron_h",
        "NemotronH",
        {"n_layers": 5, "head_dim": 24},
        config=_NEMOTRON | {"layers_block_type": [FULL, RECURRENT, "mlp", FULL, RECURRENT]},
    ),
    "nemotron_h_moe": Variant("nemotron_h_moe", "NemotronH", {"n_layers": 3}, _SCALED, config=_NEMOTRON_MOE),
    "nemotron_h_moe-latent": Variant(
        "nemotron_h_moe",
        "NemotronH",
        {"n_layers": 3},
        _SCALED | {"{arch}.moe_latent_size": 32},
        _latent(),
        _NEMOTRON_MOE | {"moe_latent_size": 32},
    ),
    "lfm2moe": Variant(
        "lfm2moe",
        "Lfm2Moe",
        {"n_layers": 3, "n_dense": 1},
        config={
            "norm_eps": 1e-5,
            "conv_L_cache": 3,
            "layer_types": [FULL, "conv", FULL],
            "num_dense_layers": 1,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 96,
            "norm_topk_prob": True,
            "use_expert_bias": True,
        },
    ),
    "plamo2": Variant("plamo2", PEER, {"n_layers": 4, "tied": True}),
    "jamba": Variant("jamba", "Jamba", {"n_layers": 3}, config=_JAMBA | {"num_experts": 4, "num_experts_per_tok": 2}),
    "jamba-dense": Variant(
        "jamba",
        "Jamba",
        {"n_layers": 3, "n_experts": 0, "tied": True},
        {"{arch}.expert_count": 1, "{arch}.expert_used_count": 1},
        config=_JAMBA | {"num_experts": 1, "num_experts_per_tok": 1},
    ),
}
