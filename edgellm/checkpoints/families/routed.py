"""Experts with a bias for the choice, shared ones, or groups: GLM-4.5, dots1, Ernie, Hunyuan, MiniMax-M2, gpt-oss, DeepSeek."""

from __future__ import annotations

import numpy as np

from edgellm.checkpoints.families._family import INNER, Family, scaling, yarn_magnitude
from edgellm.checkpoints.families._pieces import FLAT, Config, Metadata, Order, Rows, Shape, Slice, copied, rows_of
from edgellm.checkpoints.families.experts import EXPERTS, MIXTRAL

SOFTMAX, SIGMOID, OF_CHOSEN = 1, 2, 3  # expert_gating_func
SHARED = INNER | EXPERTS | {f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
BIAS = {"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}
LATENT = SHARED | {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.embed_q": "attn_k_b",  # MLX's halves of it
    "self_attn.unembed_out": "attn_v_b",
}
HUNYUAN = (
    INNER
    | EXPERTS
    | {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm", "mlp.gate.wg": "ffn_gate_inp"}
    | {f"mlp.shared_mlp.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
)
HY_V3 = (
    INNER
    | EXPERTS
    | {"mlp.router.gate": "ffn_gate_inp"}
    | {f"mlp.shared_mlp.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
)
GPT_OSS = INNER | {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"}
OSS_EXPERTS = {
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.experts.gate_up_proj": "ffn_turned_exps.weight",
    "mlp.experts.gate_up_proj_blocks": "ffn_gate_up_exps.weight",
    "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.bias",
    "mlp.experts.down_proj": "ffn_turned_down_exps.weight",
    "mlp.experts.down_proj_blocks": "ffn_down_exps.weight",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
}


def single(value: object) -> object:
    """A number that some configurations list by layer."""
    return value[0] if isinstance(value, list) and value and all(each == value[0] for each in value) else value


routed = copied(
    {
        "expert_used_count": "num_experts_per_tok",
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_gating_func": SIGMOID,
        "expert_weights_scale": "routed_scaling_factor",
        "expert_group_count": "n_group",
        "expert_group_used_count": "topk_group",
    }
)


def shared(config: Config) -> Metadata:
    """Keys of experts under DeepSeek's names."""
    return routed(config) | {
        "expert_count": config.get("n_routed_experts"),
        "expert_shared_count": config.get("n_shared_experts"),
        "expert_weights_norm": bool(config.get("norm_topk_prob", False)),
    }


def latent(config: Config) -> Metadata:
    """Keys of DeepSeek's attention, as one head of keys that all queries share."""
    plain, turned, short = (config[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank"))
    lengths = {
        "attention.key_length": short + turned,
        "attention.value_length": short,
        "attention.key_length_mla": plain + turned,
        "attention.value_length_mla": config.get("v_head_dim"),
    }
    greedy = config.get("topk_method") == "greedy"
    groups = {"expert_group_count": None, "expert_group_used_count": None} if greedy else {}
    rope = scaling(config)
    every, given = rope.get("mscale_all_dim"), rope.get("attention_factor")
    magnitude = {"rope.scaling.yarn_attn_factor": yarn_magnitude(rope)} if every != rope.get("mscale") and given is None else {}
    sigmoid = config.get("scoring_func", "softmax" if config.get("model_type") == "deepseek_v2" else "sigmoid") == "sigmoid"
    return (
        shared(config)
        | groups
        | lengths
        | magnitude
        | {
            "expert_gating_func": SIGMOID if sigmoid else SOFTMAX,
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": config.get("q_lora_rank"),
            "attention.kv_lora_rank": short,
            "rope.dimension_count": turned,
            "rope.scaling.yarn_log_multiplier": 0.1 * every if every else None,
        }
    )


def one_magnitude(config: Config) -> str:
    """Where one of yarn's magnitudes is missing, definitions differ on what the other one means."""
    own, every = scaling(config).get("mscale"), scaling(config).get("mscale_all_dim")
    return (
        ""
        if (own if every else own in (None, 0, 1))
        else "rope_scaling.mscale"
        if config.get("rope_scaling")
        else "rope_parameters.mscale"
    )


def of_keys(config: Config, shape: Shape) -> Rows:
    return _part(config, shape)[:, : config["qk_nope_head_dim"]].reshape(-1)


def of_values(config: Config, shape: Shape) -> Rows:
    return _part(config, shape)[:, config["qk_nope_head_dim"] :].reshape(-1)


def _part(config: Config, shape: Shape) -> Rows:
    return np.arange(rows_of(shape)).reshape(config["num_attention_heads"], config["qk_nope_head_dim"] + config["v_head_dim"])


def by_head(config: Config, shape: Shape) -> Shape:
    heads = config["num_attention_heads"]
    return (heads, shape[0] // heads, shape[1])


def every_second(first: int, *, axis: int = -2) -> Order:
    """Rows (of all experts) or columns `first`, `first` + 2, ..."""

    def order(config: Config, shape: Shape) -> Rows:
        return np.arange(first, shape[-1] if axis == -1 else rows_of(shape), 2)

    return order


LOCAL = {
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "intermediate_size",
}
ernie_experts = copied(
    {
        "expert_count": "moe_num_experts",
        "expert_used_count": "moe_k",
        "expert_feed_forward_length": "moe_intermediate_size",
        "leading_dense_block_count": "moe_layer_start_index",
        "interleave_moe_layer_step": "moe_layer_interval",
    }
)


def minimax(config: Config) -> Metadata:
    rotated = {"rope.dimension_count": config["rotary_dim"]} if "rotary_dim" in config else {}
    return copied(LOCAL | {"expert_gating_func": SIGMOID})(config) | rotated


def ernie(config: Config) -> Metadata:
    width, n = config["moe_intermediate_size"], config.get("moe_num_shared_experts") or 0
    return ernie_experts(config) | {"expert_shared_feed_forward_length": width * n}


def ernie_refuses(config: Config) -> str:
    return "" if config.get("moe_layer_end_index") in (None, -1, config["num_hidden_layers"] - 1) else "moe_layer_end_index"


def hunyuan(config: Config) -> Metadata:
    """Keys of experts, and the base of angles that a long context raises."""
    return hunyuan_base(config) | {
        "expert_count": single(config.get("num_experts")),
        "expert_used_count": single(config.get("moe_topk")),
        "expert_shared_count": single(config.get("num_shared_expert", 1)),
        "expert_feed_forward_length": single(config.get("moe_intermediate_size")) or config.get("intermediate_size"),
        "expert_shared_feed_forward_length": config.get("intermediate_size"),
    }


def hunyuan_base(config: Config) -> Metadata:
    """A scaling with an alpha is a base of alpha ** (d / (d - 2)) times as much."""
    size, alpha = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"], scaling(config).get("alpha")
    base = scaling(config).get("rope_theta") or config.get("rope_theta", 10000.0)
    return {"rope.freq_base": float(base * alpha ** (size / (size - 2)))} if alpha else {}


hy_v3_experts = copied(
    {
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_gating_func": SIGMOID,
        "expert_weights_norm": True,
        "expert_weights_scale": "router_scaling_factor",
    }
)


def hy_v3(config: Config) -> Metadata:
    width = config["moe_intermediate_size"] * (config.get("num_shared_experts") or 1)
    return hy_v3_experts(config) | {"expert_shared_feed_forward_length": width}


def none_slides(config: Config) -> str:
    """A window in the layers behind the first `max_window_layers`, or in those that `layer_types` names, asks for another graph."""
    kinds, first = config.get("layer_types"), config.get("max_window_layers", config["num_hidden_layers"])
    slides = "sliding_attention" in kinds if kinds else first < config["num_hidden_layers"]
    return ("layer_types" if kinds else "max_window_layers") if slides and config.get("sliding_window") else ""


BY_TURNS = tuple(enumerate(("ffn_gate_exps", "ffn_up_exps")))
GATES_AND_PRODUCTS = {  # interleaved, of experts that multiply from the left (MXFP4) or from the right
    "ffn_gate_up_exps": tuple(Slice(name, every_second(i)) for i, name in BY_TURNS),
    "ffn_gate_up_exps.bias": tuple(Slice(name, columns=every_second(i, axis=-1)) for i, name in BY_TURNS),
    "ffn_turned_exps": tuple(Slice(name, columns=every_second(i, axis=-1), turned=True) for i, name in BY_TURNS),
    "ffn_turned_down_exps": (Slice("ffn_down_exps", turned=True),),
}
KEYS_AND_VALUES = (Slice("attn_k_b", of_keys, shape=by_head, turned=True), Slice("attn_v_b", of_values, shape=by_head))

FAMILIES = (
    Family(
        "glm4moe",
        ("glm4_moe",),
        SHARED | {"post_attention_layernorm": "post_attention_norm"},
        bare=BIAS,
        keys=shared,
        only={"norm_topk_prob": (True,)},
        turns_part=True,
        defaults={"partial_rotary_factor": 0.5},
    ),
    Family("dots1", ("dots1",), SHARED, bare=BIAS, keys=shared, refuses=none_slides),
    Family(
        "ernie4_5-moe",
        ("ernie4_5_moe",),
        SHARED,
        pieces={"exp_probs_b": FLAT},
        keys=ernie,
        refuses=ernie_refuses,
        bare={"mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias"},
        only={"moe_use_aux_free": (True,), "moe_gate_act": ("softmax",)},
    ),
    Family(
        "hunyuan-moe",
        ("hunyuan_v1_moe",),
        HUNYUAN,
        keys=hunyuan,
        own_ropes={"dynamic"},
        only={"use_mixed_mlp_moe": (True,), "use_cla": (False,)},
    ),
    Family("hunyuan-dense", ("hunyuan_v1_dense",), HUNYUAN, keys=hunyuan_base, own_ropes={"dynamic"}),
    Family(
        "hy_v3",
        ("hy_v3",),
        HY_V3,
        bare={"mlp.expert_bias": "exp_probs_b"},
        keys=hy_v3,
        only={"route_norm": (True,), "num_shared_experts": (1, 2, 3, 4)},
    ),
    Family(
        "minimax-m2",
        ("minimax_m2",),
        INNER | MIXTRAL,
        keys=minimax,
        turns_part=True,
        only={"scoring_func": ("sigmoid",), "qk_norm_type": ("per_layer",)},
        bare={"block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias"},
    ),
    Family(
        "gpt-oss",
        ("gpt_oss",),
        GPT_OSS,
        bare=OSS_EXPERTS,
        pieces=GATES_AND_PRODUCTS,
        keys=copied(LOCAL | {"expert_gating_func": OF_CHOSEN}),
        slides=True,
        whole_pairs=False,
        only={"swiglu_limit": (7.0,), "swiglu_alpha": (1.702,)},
    ),
    Family(
        "deepseek2",
        ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2"),
        LATENT,
        bare=BIAS,
        keys=latent,
        pieces={"attn_kv_b": KEYS_AND_VALUES},
        refuses=one_magnitude,
        only={
            "moe_layer_freq": (1,),
            "rope_interleave": (True,),
            "scoring_func": ("softmax", "sigmoid"),
            "topk_method": ("greedy", "group_limited_greedy", "noaux_tc"),
        },
    ),
)
