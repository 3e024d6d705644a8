"""Latent attention of others than DeepSeek: MiniCPM3, whose keys and values one matrix makes, Mistral Small 4, Kimi Linear."""

from __future__ import annotations

import math

import numpy as np

from edgellm.checkpoints.families._family import Family
from edgellm.checkpoints.families._pieces import DECAY, Config, Metadata, Shape, Slice, copied, half
from edgellm.checkpoints.families.experts import MIXTRAL
from edgellm.checkpoints.families.llama import ministral
from edgellm.checkpoints.families.routed import KEYS_AND_VALUES, LATENT, SIGMOID, SOFTMAX, latent, one_magnitude

EMBEDDING, DEPTH, WIDTH = 12, 1.4, 256  # what the graph has

PACKED = {"mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight", "mlp.experts.down_proj": "ffn_down_exps.weight"}
BOTH = (Slice("ffn_gate_exps", half(0)), Slice("ffn_up_exps", half(1)))
KIMI = (
    LATENT
    | MIXTRAL
    | {f"block_sparse_moe.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
    | {f"block_sparse_moe.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
    | {f"self_attn.{part}_{name}": f"ssm_conv1d_{part}" for part in "qkv" for name in ("conv1d", "conv.conv")}
    | {f"self_attn.{name}_proj": f"ssm_{name}" for name in ("f_a", "f_b", "g_a", "g_b")}
    | {"self_attn.b_proj": "ssm_beta", "self_attn.o_norm": "ssm_norm"}
)
KIMI_NAMES = {
    "self_attn.A_log": "ssm_a",
    "self_attn.dt_bias": "ssm_dt.bias",
    "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.e_score_correction_bias": "exp_probs_b.bias",  # of MLX
}


def minicpm3(config: Config) -> Metadata:
    turned = config["qk_rope_head_dim"]
    return {
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "attention.kv_lora_rank": config.get("kv_lora_rank"),
        "attention.key_length": config["qk_nope_head_dim"] + turned,
        "attention.value_length": config.get("v_head_dim"),
        "rope.dimension_count": turned,
    }


def mistral4(config: Config) -> Metadata:
    """As deepseek2 has them, and queries that grow with their position."""
    growth = ministral(config)["attention.temperature_scale"]
    return latent(config) | {
        "attention.temperature_scale": growth,
        "expert_gating_func": SOFTMAX,
        "attention.temperature_length": config["rope_parameters"].get("original_max_position_embeddings"),
    }


kimi_settings = copied(
    {
        "attention.value_length": None,
        "attention.kv_lora_rank": "kv_lora_rank",
        "attention.q_lora_rank": "q_lora_rank",
        "rope.dimension_count": "qk_rope_head_dim",
        "attention.value_length_mla": "v_head_dim",
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_token",
        "expert_shared_count": "num_shared_experts",
        "expert_gating_func": SIGMOID,
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_weights_scale": "routed_scaling_factor",
    }
)


def kimi(config: Config) -> Metadata:
    """Layers that keep a state have no key heads."""
    n, short, turned = config["num_hidden_layers"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    state, kinds = config.get("linear_attn_config") or {}, config.get("layer_types")
    full = [layer + 1 for layer, kind in enumerate(kinds) if kind == "full_attention"] if kinds else state["full_attn_layers"]
    dense = config.get("mlp_layer_types")
    return kimi_settings(config) | {
        "attention.head_count_kv": np.array([layer + 1 in full for layer in range(n)], np.int32),
        "attention.key_length": short + turned,
        "attention.key_length_mla": config["qk_nope_head_dim"] + turned,
        "kda.head_dim": state.get("head_dim", config.get("linear_head_dim", 128)),
        "ssm.conv_kernel": state.get("short_conv_kernel_size", config.get("linear_conv_kernel_dim", 4)),
        "leading_dense_block_count": dense.count("dense") if dense else config.get("first_k_dense_replace", 1),
    }


def kimi_refuses(config: Config) -> str:
    """GGUF has one number of heads, for both kinds of layers; layers without experts come first."""
    state, heads, kinds = config.get("linear_attn_config") or {}, config["num_attention_heads"], config.get("mlp_layer_types")
    if state.get("num_heads", config.get("linear_num_heads", heads)) != heads:
        return "linear_num_heads"
    return "mlp_layer_types" if kinds and sorted(kinds) != kinds else ""


def four_dimensions(config: Config, shape: Shape) -> Shape:
    return (1, shape[0], 1, shape[-1])


def depth(config: Config) -> str:
    return "" if math.isclose(config.get("scale_depth") or 0, DEPTH) else "scale_depth"


FAMILIES = (
    Family(
        "mistral4",
        ("mistral4",),
        LATENT,
        keys=mistral4,
        refuses=one_magnitude,
        bare=PACKED,
        pieces={"attn_kv_b": KEYS_AND_VALUES, "ffn_gate_up_exps": BOTH},
        only={"rope_interleave": (True,), "n_group": (1,), "moe_layer_freq": (1,)},
    ),
    Family(
        "kimi-linear",
        ("kimi_linear",),
        KIMI,
        bare=KIMI_NAMES,
        keys=kimi,
        refuses=kimi_refuses,
        reads={"max_position_embeddings": ("model_max_length",)},
        pieces={"attn_kv_b": KEYS_AND_VALUES, "ssm_a": DECAY}
        | {f"ssm_conv1d_{part}": (Slice(shape=four_dimensions),) for part in "qkv"},
        only={
            "moe_renormalize": (True,),
            "num_expert_group": (1,),
            "moe_router_activation_func": ("sigmoid",),
            "mla_use_nope": (True,),
            "moe_layer_freq": (1,),
        },
    ),
    Family(
        "minicpm3",
        ("minicpm3",),
        LATENT,
        keys=minicpm3,
        refuses=depth,
        defaults={"scale_depth": DEPTH},
        only={"scale_emb": (EMBEDDING,), "dim_model_base": (WIDTH,)},
    ),
)
