"""Layers with short convolutions or gated delta nets among those that attend: LFM2, Qwen3-Next, Qwen 3.5."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families._pieces import (
    CONVOLUTION,
    DECAY,
    FLAT,
    Config,
    Metadata,
    Rows,
    Shape,
    Slice,
    half,
    minus_exp,
    rows_of,
    squeezed,
)
from edgellm.checkpoints.families.experts import EXPERTS, counts

FULL = "full_attention"
LFM2 = (
    {
        "operator_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "conv.conv": "shortconv.conv",
        "conv.in_proj": "shortconv.in_proj",
        "conv.out_proj": "shortconv.out_proj",
        "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output",
        "feed_forward.gate": "ffn_gate_inp",
    }
    | {f"feed_forward.{theirs}": f"ffn_{part}" for theirs, part in (("w1", "gate"), ("w2", "down"), ("w3", "up"))}
    | {f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}  # of MLX's folders
    | {f"feed_forward.experts.*.{theirs}": f"ffn_{part}_exps" for theirs, part in (("w1", "gate"), ("w2", "down"), ("w3", "up"))}
)
LFM2_ENDS = {"embed_tokens": "token_embd", "embedding_norm": "token_embd_norm", "lm_head": "output"}
DELTA = (
    INNER
    | EXPERTS
    | {
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_ba": "ssm_ba",
        "linear_attn.in_proj_qkvz": "attn_qkvz",
        "linear_attn.conv1d": "ssm_conv1d",
        "linear_attn.norm": "ssm_norm",
        "linear_attn.out_proj": "ssm_out",
    }
)
DELTA_BARE = {
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
}
BOTH_EXPERTS = {"ffn_gate_up_exps": (Slice("ffn_gate_exps", half(0)), Slice("ffn_up_exps", half(1))), "ffn_gate_inp_shexp": FLAT}


def kinds(config: Config) -> list[str]:
    """The kind of each layer, from either setting."""
    found, attending = config.get("layer_types"), config.get("full_attn_idxs")
    if found is None and attending is not None:
        return [FULL if layer in attending else "conv" for layer in range(config["num_hidden_layers"])]
    return found or []


def attending(config: Config) -> Metadata:
    """The number of key heads by layer: none where a layer does not attend."""
    return attends(config, kinds(config))


def attends(config: Config, layers: list[str]) -> Metadata:
    n = config.get("num_key_value_heads") or config["num_attention_heads"]
    return {"attention.head_count_kv": np.array([n if kind in (FULL, "attention") else 0 for kind in layers], np.int32)}


def lfm2(config: Config) -> Metadata:
    """The width of feed-forwards is two thirds of what dense models' configurations say, rounded up."""
    width = config.get("block_ff_dim", config.get("intermediate_size"))
    if config.get("block_auto_adjust_ff_dim", config.get("model_type") == "lfm2"):
        multiple = config.get("block_multiple_of", 256)
        width = int(config.get("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        width = -(-width // multiple) * multiple
    experts = {
        "leading_dense_block_count": config.get("num_dense_layers"),
        "expert_gating_func": 2,
        "expert_weights_scale": config.get("routed_scaling_factor"),
    } | counts(config)
    return (
        attending(config)
        | {"shortconv.l_cache": config.get("conv_L_cache"), "feed_forward_length": width}
        | (experts if config.get("num_experts") else {})
    )


def delta(config: Config) -> Metadata:
    """Sizes of recurrent layers, and which layers attend."""
    heads, period = config["linear_num_value_heads"], config.get("full_attention_interval", 4)
    found: Metadata = {
        "ssm.conv_kernel": config.get("linear_conv_kernel_dim"),
        "ssm.state_size": config.get("linear_key_head_dim"),
        "ssm.group_count": config.get("linear_num_key_heads"),
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * config["linear_value_head_dim"],
        "full_attention_interval": period,
    }
    recurrent = [kind != FULL for kind in kinds(config)]
    if recurrent and recurrent != [(layer + 1) % period != 0 for layer in range(len(recurrent))]:
        found["attention.recurrent_layers"] = np.array(recurrent)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if sections := rope.get("mrope_section"):
        found["rope.dimension_sections"] = np.array([*sections, 0, 0, 0, 0][:4], np.int32)
    experts = counts(config)
    return found | (experts if config.get("num_experts") else {})


def other_graph(config: Config) -> str:
    if config.get("norm_topk_prob", True) is not True and config.get("num_experts"):
        return "norm_topk_prob"
    if config.get("attn_output_gate", True) is not True:
        return "attn_output_gate"
    return "attention_bias" if config.get("attention_bias") else ""


def value_heads(config: Config, shape: Shape) -> Rows:
    """From heads of values that share a key beside each other to all first ones, all second ones, ..."""
    groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    return np.arange(rows_of(shape)).reshape(groups, heads // groups, -1).swapaxes(0, 1).reshape(-1)


def value_columns(config: Config, shape: Shape) -> Rows:
    return value_heads(config, (shape[-1],))


def queries_keys_values(config: Config, shape: Shape) -> Rows:
    kept = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    rows = np.arange(rows_of(shape))
    return np.concatenate([rows[:kept], kept + value_heads(config, rows[kept:].shape)])


def _by_key_head(config: Config, shape: Shape) -> list[Rows]:
    """Rows of queries, keys, values and gates, which lie together for each head of keys."""
    groups, dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // groups * config["linear_value_head_dim"]
    rows = np.arange(rows_of(shape)).reshape(groups, 2 * dim + 2 * values)
    return [part.reshape(-1) for part in np.split(rows, [dim, 2 * dim, 2 * dim + values], axis=1)]


def mixed(config: Config, shape: Shape) -> Rows:
    return np.concatenate(_by_key_head(config, shape)[:3])


def gates(config: Config, shape: Shape) -> Rows:
    return _by_key_head(config, shape)[3]


VALUES = (Slice(rows=value_heads),)
QWEN35 = BOTH_EXPERTS | {
    "attn_qkv": (Slice(rows=queries_keys_values),),
    "ssm_conv1d": (Slice(rows=queries_keys_values, shape=squeezed),),
    "attn_gate": VALUES,
    "ssm_alpha": VALUES,
    "ssm_beta": VALUES,
    "ssm_dt": VALUES,
    "ssm_a": (Slice(rows=value_heads, values=minus_exp),),
    "ssm_out": (Slice(columns=value_columns),),
}
SPLIT = BOTH_EXPERTS | {
    "attn_qkvz": (Slice("attn_qkv", mixed), Slice("attn_gate", gates)),
    "ssm_conv1d": CONVOLUTION,
    "ssm_a": DECAY,
}
QWEN3_NEXT = Family(
    "qwen3next",
    ("qwen3_next",),
    DELTA,
    bare=DELTA_BARE,
    pieces=SPLIT,
    keys=delta,
    refuses=other_graph,
    norms_from_zero=True,
    kept_norms={"ssm_norm"},
    shifted_in_mlx=True,
    turns_part=True,
    defaults={"partial_rotary_factor": 0.25},
)
QWEN35_DENSE = replace(QWEN3_NEXT, architecture="qwen35", model_types=("qwen3_5_text", "qwen3_5"), pieces=QWEN35)

FAMILIES = (
    Family(
        "lfm2",
        ("lfm2",),
        LFM2,
        LFM2_ENDS,
        pieces={"shortconv.conv": CONVOLUTION},
        keys=lfm2,
        reads={"rms_norm_eps": ("norm_eps", "block_norm_eps"), "rope_theta": ("rope_theta", "theta")},
        only={"conv_bias": (False,)},
    ),
    Family(
        "lfm2moe",
        ("lfm2_moe",),
        LFM2,
        LFM2_ENDS,
        pieces={"shortconv.conv": CONVOLUTION},
        keys=lfm2,
        bare={"feed_forward.expert_bias": "exp_probs_b.bias"},
        reads={"rms_norm_eps": ("norm_eps",)},
        only={"conv_bias": (False,), "norm_topk_prob": (True,)},
    ),
    QWEN3_NEXT,
    QWEN35_DENSE,
    replace(QWEN35_DENSE, architecture="qwen35moe", model_types=("qwen3_5_moe_text", "qwen3_5_moe")),
)
