"""Mamba, Mamba 2, and the models that mix them with attention: Falcon-H1, Granite 4, Bamba, Nemotron-H, Jamba."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from edgellm.checkpoints.families._family import INNER, OUTER, Family
from edgellm.checkpoints.families._pieces import (
    CONVOLUTION,
    DECAY,
    GATE_AND_UP,
    Config,
    Floats,
    Metadata,
    Shape,
    Slice,
    column,
    copied,
    minus_exp,
)
from edgellm.checkpoints.families.experts import GRANITE, HALVES, SHARED_EXPERT, SHARED_MLP, granite
from edgellm.checkpoints.families.hybrid import FULL, attends, kinds

MIXER = {
    "in_proj": "ssm_in",
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
    "out_proj": "ssm_out",
    "conv1d": "ssm_conv1d",
    "norm": "ssm_norm",
    "dt_layernorm": "ssm_dt_norm",
    "b_layernorm": "ssm_b_norm",
    "c_layernorm": "ssm_c_norm",
}
STATES = {"A_log": "ssm_a", "D": "ssm_d", "dt_bias": "ssm_dt.bias"}
FEED_FORWARD = {f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
MAMBA_ENDS = {"embeddings": "token_embd", "embedding": "token_embd", "norm_f": "output_norm", "lm_head": "output"}
FINAL = OUTER | {"final_layernorm": "output_norm"}
CONTEXT = 1 << 20  # of models that forget nothing by their positions
KINDS = {"M": "mamba", "*": FULL, "-": "mlp", "E": "moe"}


def inside(name: str, parts: Mapping[str, str]) -> dict[str, str]:
    return {f"{name}.{theirs}": ours for theirs, ours in parts.items()}


def grouped(config: Config, shape: Shape) -> Shape:
    """A norm of each group by itself."""
    groups = config.get("n_groups", config.get("mamba_n_groups", 1))
    return (groups, shape[0] // groups)


MAMBA = {"ssm_conv1d": CONVOLUTION, "ssm_a": DECAY}
MAMBA2 = {
    "ssm_conv1d": CONVOLUTION,
    "ssm_a": (Slice(shape=column, values=minus_exp),),
    "ssm_d": (Slice(shape=column),),
    "ssm_norm": (Slice(shape=grouped),),
}


def mamba(config: Config) -> Metadata:
    """Sizes of Mamba's first kind of layers."""
    width, factor = config["hidden_size"], config.get("expand", config.get("mamba_expand", 2))
    rank = config.get("time_step_rank", config.get("mamba_dt_rank"))
    return {
        "ssm.conv_kernel": config.get("conv_kernel", config.get("mamba_d_conv")),
        "ssm.inner_size": factor * width,
        "ssm.state_size": config.get("state_size", config.get("mamba_d_state")),
        "ssm.time_step_rank": -(-width // 16) if rank == "auto" else rank,
    }


def pure(config: Config) -> Metadata:
    """Without attention, whose keys are there all the same. llama.cpp has one epsilon for all of Falcon Mamba's norms."""
    falcon: Metadata = {}
    if config.get("model_type") == "falcon_mamba":
        own = config.get("mixer_rms_eps")
        falcon = {"ssm.dt_b_c_rms": True, "ssm.dt_b_c_rms_epsilon": own if own != config.get("rms_norm_eps") else None}
    return (
        mamba(config)
        | falcon
        | {
            "context_length": config.get("max_position_embeddings", CONTEXT),
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "attention.head_count_kv": None,
        }
    )


def mamba2(heads: str, length: str, state: str, kernel: str, groups: str) -> Callable[[Config], Metadata]:
    """Keys of Mamba 2 by a family's names."""
    names = copied({"ssm.conv_kernel": kernel, "ssm.state_size": state, "ssm.group_count": groups})

    def keys(config: Config) -> Metadata:
        n, dim = config[heads], config[length]
        if dim == "auto":
            dim = (config.get("mamba_d_ssm") or config.get("mamba_expand", 2) * config["hidden_size"]) // n
        return names(config) | {"ssm.time_step_rank": n, "ssm.inner_size": n * dim}

    return keys


of_mamba2 = mamba2("num_heads", "head_dim", "state_size", "conv_kernel", "n_groups")
of_hybrids = mamba2("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv", "mamba_n_groups")
of_nemotron = mamba2("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel", "n_groups")


def granite_hybrid(config: Config) -> Metadata:
    """Positions are not rotated where nothing is said."""
    shared = config.get("shared_intermediate_size")
    dense = {"expert_count": None, "expert_used_count": None, "feed_forward_length": shared}
    return (
        granite(config)
        | of_hybrids(config)
        | attends(config, kinds(config))
        | {"rope.scaling.finetuned": config.get("position_embedding_type") == "rope"}
        | ({"expert_shared_feed_forward_length": shared} if config.get("num_local_experts") else dense)
    )


def bamba(config: Config) -> Metadata:
    """Half of each head is rotated, whatever a configuration says."""
    attending, layers = config.get("attn_layer_indices") or [], range(config["num_hidden_layers"])
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return (
        of_hybrids(config)
        | attends(config, [FULL if layer in attending else "" for layer in layers])
        | {"rope.scaling.finetuned": True, "rope.dimension_count": size // 2}
    )


def nemotron_kinds(config: Config) -> list[str]:
    found = config.get("layers_block_type")
    return [KINDS[letter] for letter in config["hybrid_override_pattern"]] if found is None else found


nemotron_experts = copied(
    {
        "expert_count": "n_routed_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "moe_latent_size": "moe_latent_size",
        "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
        "expert_weights_scale": "routed_scaling_factor",
        "expert_weights_norm": "norm_topk_prob",
        "expert_group_count": "n_group",
        "expert_group_used_count": "topk_group",
    }
)


def nemotron(config: Config) -> Metadata:
    layers, widths = nemotron_kinds(config), {"mlp": config.get("intermediate_size"), "moe": config.get("moe_intermediate_size")}
    found = {"block_count": len(layers), "feed_forward_length": np.array([widths.get(kind) or 0 for kind in layers], np.int32)}
    experts = nemotron_experts(config)
    return of_nemotron(config) | attends(config, layers) | found | (experts if "moe" in layers else {})


def jamba(config: Config) -> Metadata:
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    layers = [FULL if layer % period == offset else "" for layer in range(config["num_hidden_layers"])]
    return (
        mamba(config)
        | attends(config, layers)
        | {"expert_count": config.get("num_experts"), "expert_used_count": config.get("num_experts_per_tok")}
    )


def times(*names: str) -> tuple[Slice, ...]:
    """Falcon-H1's factors, which GGUF has in the matrices; "name.1" is the second of a list."""

    def values(config: Config, found: Floats) -> Floats:
        for name in names:
            key, _, index = name.partition(".")
            factor = config.get(key, 1.0)
            found = found * np.float32(factor[int(index)] if index else factor)
        return found

    return (Slice(values=values, keeps=True),)


def left_by_mlx(config: Config) -> dict[str, Floats]:
    """Factors that mlx_lm does not multiply into its matrices, as their tensors `.scale`."""
    inside = config.get("attention_in_multiplier", 1.0)
    factors = {"attn_k": config.get("key_multiplier", 1.0), "attn_v": inside}
    return {
        f"blk.{layer}.{part}.scale": np.array([factor], np.float32)
        for layer in range(config["num_hidden_layers"])
        for part, factor in factors.items()
        if factor != 1.0
    }


def mixed(config: Config, values: Floats) -> Floats:
    """Factors of the gate, x, B, C and dt, which are rows of one matrix."""
    inner, shared = config["mamba_n_heads"] * config["mamba_d_head"], config["mamba_n_groups"] * config["mamba_d_state"]
    sizes = (inner, inner, shared, shared, config["mamba_n_heads"])
    factors = np.repeat(np.array(config.get("ssm_multipliers", [1.0] * 5), np.float32), sizes)
    return values * np.float32(config.get("ssm_in_multiplier", 1.0)) * factors[:, None]


FALCON_H1 = MAMBA2 | {
    "token_embd": times("embedding_multiplier"),
    "output": times("lm_head_multiplier"),
    "attn_q": times("attention_in_multiplier"),
    "attn_k": times("attention_in_multiplier", "key_multiplier"),
    "attn_v": times("attention_in_multiplier"),
    "attn_q.bias": times(),
    "attn_k.bias": times("key_multiplier"),
    "attn_v.bias": times(),
    "attn_output": times("attention_out_multiplier"),
    "ffn_gate": times("mlp_multipliers.0"),
    "ffn_down": times("mlp_multipliers.1"),
    "ssm_in": (Slice(values=mixed, keeps=True),),
    "ssm_out": times("ssm_out_multiplier"),
}


def limited_steps(config: Config) -> str:
    """Steps of time that are cut; transformers writes infinity as an object."""
    limit = config.get("time_step_limit")
    return "" if limit is None or (limit[0] == 0 and (isinstance(limit[1], Mapping) or math.isinf(limit[1]))) else "time_step_limit"


def normed_steps(config: Config) -> str:
    """Norms of what the state's steps, inputs and outputs are made of, which Falcon Mamba alone has."""
    return "use_bcdt_rms" if config.get("use_bcdt_rms") and config.get("model_type") != "falcon_mamba" else ""


def tied_factors(config: Config) -> str:
    """An embedding that is the head too has one factor; norms come behind the gate."""
    if key := limited_steps(config):
        return key
    if config.get("mamba_rms_norm") and config.get("mamba_norm_before_gate"):
        return "mamba_norm_before_gate"
    ends = {config.get(key, 1.0) for key in ("embedding_multiplier", "lm_head_multiplier")}
    return "tie_word_embeddings" if config.get("tie_word_embeddings") and len(ends) > 1 else ""


NEMOTRON = inside(
    "mixer",
    MIXER
    | {
        "q_proj": "attn_q",
        "k_proj": "attn_k",
        "v_proj": "attn_v",
        "o_proj": "attn_output",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
        "gate": "ffn_gate_inp",
        "experts.*.up_proj": "ffn_up_exps",
        "experts.*.down_proj": "ffn_down_exps",
        "switch_mlp.fc1": "ffn_up_exps",  # of MLX's folders
        "switch_mlp.fc2": "ffn_down_exps",
        "shared_experts.up_proj": "ffn_up_shexp",
        "shared_experts.down_proj": "ffn_down_shexp",
        "fc1_latent_proj": "ffn_latent_down",
        "fc2_latent_proj": "ffn_latent_up",
    },
) | {"norm": "attn_norm"}
NEMOTRON_BARE = inside("mixer", STATES) | {"mixer.gate.e_score_correction_bias": "exp_probs_b.bias"}
JAMBA = (
    INNER
    | inside("mamba", MIXER)
    | FEED_FORWARD
    | {"pre_ff_layernorm": "ffn_norm", "feed_forward.router": "ffn_gate_inp"}
    | {f"feed_forward.experts.*.{part}_proj": f"ffn_{part}_exps" for part in ("gate", "up", "down")}
)
HYBRID = INNER | inside("mamba", MIXER)
NO_BIASES = {"mamba_proj_bias": (False,), "normalization_function": ("rmsnorm",)}
EPSILON = {"rms_norm_eps": ("layer_norm_epsilon", "norm_eps", "rms_norm_eps"), "layer_norm_epsilon": ()}

BOTH_EPSILONS = EPSILON | {"layer_norm_epsilon": EPSILON["rms_norm_eps"], "hidden_act": ("mlp_hidden_act",)}

NEMOTRON_H = Family(
    "nemotron_h",
    ("nemotron_h",),
    NEMOTRON,
    MAMBA_ENDS,
    activations=("relu2",),
    pieces=MAMBA2,
    keys=nemotron,
    bare=NEMOTRON_BARE,
    reads=BOTH_EPSILONS,
    only=NO_BIASES | {"use_bias": (False,), "mamba_hidden_act": ("silu",)},
    refuses=limited_steps,
)
FAMILIES = (
    Family(
        "mamba",
        ("mamba", "falcon_mamba"),
        inside("mixer", MIXER) | {"norm": "attn_norm"},
        MAMBA_ENDS,
        pieces=MAMBA,
        keys=pure,
        bare=inside("mixer", STATES),
        reads=EPSILON,
        only={"use_bias": (False,), "use_conv_bias": (True,)},
        refuses=normed_steps,
    ),
    Family(
        "mamba2",
        ("mamba2",),
        inside("mixer", MIXER) | {"norm": "attn_norm"},
        MAMBA_ENDS,
        pieces=MAMBA2,
        keys=lambda config: pure(config) | of_mamba2(config),
        bare=inside("mixer", STATES),
        reads=EPSILON,
        only={"use_bias": (False,), "rms_norm": (True,)},
        refuses=limited_steps,
    ),
    Family(
        "falcon-h1",
        ("falcon_h1",),
        HYBRID | FEED_FORWARD,
        FINAL,
        pieces=FALCON_H1,
        keys=of_hybrids,
        bare=inside("mamba", STATES) | {"pre_ff_layernorm.weight": "ffn_norm"},
        refuses=tied_factors,
        only=NO_BIASES,
        folded_in_mlx=left_by_mlx,
    ),
    Family(
        "granitehybrid",
        ("granitemoehybrid",),
        HYBRID | GRANITE | SHARED_EXPERT,
        keys=granite_hybrid,
        bare=inside("mamba", STATES),
        pieces=MAMBA2 | HALVES,
        paired_rows=True,
        only=NO_BIASES,
        refuses=limited_steps,
        instead=lambda config: "" if config.get("num_local_experts") else "granitemoehybrid, dense",
    ),
    Family(
        "granitehybrid",
        ("granitemoehybrid, dense",),
        HYBRID | SHARED_MLP,
        keys=granite_hybrid,
        bare=inside("mamba", STATES),
        pieces=MAMBA2 | {"ffn_gate_up": GATE_AND_UP},
        paired_rows=True,
        only=NO_BIASES,
        refuses=limited_steps,
    ),
    Family(
        "granitehybrid",
        ("bamba",),
        HYBRID | FEED_FORWARD | {"pre_ff_layernorm": "ffn_norm"},
        FINAL,
        pieces=MAMBA2,
        keys=bamba,
        bare=inside("mamba", STATES),
        paired_rows=True,
        only=NO_BIASES,
        refuses=limited_steps,
    ),
    replace(NEMOTRON_H, instead=lambda config: "nemotron_h, experts" if "moe" in nemotron_kinds(config) else ""),
    replace(NEMOTRON_H, architecture="nemotron_h_moe", model_types=("nemotron_h, experts",)),
    Family("jamba", ("jamba",), JAMBA, FINAL, pieces=MAMBA, keys=jamba, bare=inside("mamba", STATES), only=NO_BIASES),
)
