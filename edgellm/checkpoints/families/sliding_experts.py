"""Experts in models most of whose layers slide: Trinity, K-EXAONE, Llama 4, Laguna, Mellum 2, MiMo-V2."""

from __future__ import annotations

import numpy as np

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families._pieces import Config, Metadata, Order, Rows, Shape, Slice, copied
from edgellm.checkpoints.families.experts import counts
from edgellm.checkpoints.families.routed import BIAS, LOCAL, SHARED, SIGMOID, routed, shared

TRINITY = SHARED | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_mlp_layernorm": "ffn_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "self_attn.gate_proj": "attn_gate",
    "mlp.router.gate": "ffn_gate_inp",
}


LLAMA4 = (
    INNER
    | {"feed_forward.router": "ffn_gate_inp"}
    | {
        f"feed_forward.{place}{part}_proj": f"ffn_{part}{suffix}"
        for part in ("gate", "up", "down")
        for place, suffix in (("", ""), ("shared_expert.", "_shexp"), ("experts.*.", "_exps"))
    }
)
TURNED = {
    "feed_forward.experts.gate_up_proj": "ffn_turned_exps.weight",
    "feed_forward.experts.down_proj": "ffn_turned_down_exps.weight",
}


TRINITY_KEYS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_shared_count": "num_shared_experts",
    "expert_gating_func": SIGMOID,
    "leading_dense_block_count": "num_dense_layers",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_weights_norm": True,
    "expert_weights_scale": "route_scale",
}


def k_exaone(config: Config) -> Metadata:
    n, width = config.get("num_shared_experts") or 0, config["moe_intermediate_size"]
    return routed(config) | {
        "expert_count": config.get("num_experts"),
        "expert_shared_count": n,
        "leading_dense_block_count": config.get("first_k_dense_replace", config.get("first_last_k_dense_replace")),
        "expert_shared_feed_forward_length": n * width,
        "expert_weights_norm": bool(config.get("norm_topk_prob", True)),
    }


def dense_first(config: Config) -> str:
    """Layers without experts come first, all others have them."""
    kinds = config.get("mlp_layer_types")
    first = config.get("first_k_dense_replace", config.get("first_last_k_dense_replace", 0))
    usual = [("dense" if layer < first else "sparse") for layer in range(config["num_hidden_layers"])]
    return "" if kinds in (None, usual) else "mlp_layer_types"


def side(which: int) -> Order:
    """The left half of all columns, or the right one."""

    def columns(config: Config, shape: Shape) -> Rows:
        half = shape[-1] // 2
        return np.arange(which * half, (which + 1) * half)

    return columns


def llama4(config: Config) -> Metadata:
    """A key for what llama.cpp takes for granted only where it is something else."""
    kinds, others = config.get("layer_types"), {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1}
    chunk, every, growth = (None if config.get(name, usual) == usual else config[name] for name, usual in others.items())
    full = kinds is not None and set(kinds) == {"full_attention"}
    return copied(LOCAL | {"feed_forward_length": "intermediate_size_mlp"})(config) | {
        "interleave_moe_layer_step": config.get("interleave_moe_layer_step", 1),
        "attention.sliding_window": 0 if full else chunk,
        "attention.temperature_length": every,
        "attention.temperature_scale": growth,
    }


def llama4_refuses(config: Config) -> str:
    """Settings without a key: norms of queries and keys except with 128 experts, and the layers that rotate and have experts."""
    n, step = config["num_hidden_layers"], config.get("interleave_moe_layer_step", 1)
    if bool(config.get("use_qk_norm", True)) is (config.get("num_local_experts") == 128):
        return "use_qk_norm"
    if config.get("moe_layers") not in (None, [*range(step - 1, n, step)] if step else []):
        return "moe_layers"
    turned, kinds = [int((layer + 1) % 4 != 0) for layer in range(n)], config.get("layer_types")
    full = kinds == ["full_attention"] * n
    if config.get("attn_temperature_tuning", True) not in (True, 4) and not full:
        return "attn_temperature_tuning"
    if not full and kinds not in (None, [("full_attention", "chunked_attention")[each] for each in turned]):
        return "layer_types"
    return "" if (config.get("no_rope_layers") or turned) == ([1] * n if full else turned) else "no_rope_layers"


LAGUNA = (
    SHARED
    | {"self_attn.g_proj": "attn_gate", "mlp.gate.proj": "ffn_gate_inp"}
    | {f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
)


def laguna(config: Config) -> Metadata:
    """Layers of a kind have heads of their own number, and rotate their own share of them."""
    sliding = (config.get("rope_parameters") or {}).get("sliding_attention") or {}
    kinds, heads = config.get("mlp_layer_types") or ["dense", "sparse"], config.get("num_attention_heads_per_layer")
    return counts(config) | {
        "expert_gating_func": SIGMOID,
        "expert_weights_norm": True,
        "expert_weights_scale": config.get("moe_routed_scaling_factor"),
        "leading_dense_block_count": kinds.index("sparse") if "sparse" in kinds else len(kinds),
        "attention.head_count": np.array(heads or [config["num_attention_heads"]] * config["num_hidden_layers"], np.int32),
        "rope.dimension_count_swa": int(config["head_dim"] * sliding.get("partial_rotary_factor", 1.0)),
    }


def laguna_refuses(config: Config) -> str:
    kinds = config.get("mlp_layer_types") or []
    return "" if kinds == sorted(kinds) else "mlp_layer_types"  # dense layers come first


def mellum(config: Config) -> str:
    """Experts in every layer."""
    return "mlp_layer_types" if "dense" in (config.get("mlp_layer_types") or ()) else ""


MIMO = BIAS | {"self_attn.attention_sink_bias": "attn_sinks.weight"}


def mimo(config: Config) -> Metadata:
    """Layers that slide have twice as many heads of keys; where a size is named, a token sees itself beside so many."""
    n, kv, size = config["num_hidden_layers"], config["num_key_value_heads"], config.get("sliding_window_size")
    pattern = config.get("hybrid_layer_pattern") or [int(layer > 0 and (layer + 1) % 6 > 0) for layer in range(n)]
    slides = np.array([kind == "sliding_attention" for kind in config.get("layer_types") or ()] or [flag == 1 for flag in pattern])
    more = config.get("swa_num_key_value_heads", 2 * kv)
    return shared(config) | {
        "attention.head_count_kv": np.array([more if each else kv for each in slides], np.int32),
        "attention.value_length": config.get("v_head_dim"),
        "attention.value_scale": config.get("attention_value_scale"),
        "attention.sliding_window": config.get("sliding_window") if size is None else size + 1,
        "attention.sliding_window_pattern": slides,
        **({"rope.freq_base_swa": float(config["swa_rope_theta"])} if config.get("swa_rope_theta") else {}),
    }


def mimo_refuses(config: Config) -> str:
    """Heads of one length and number in all layers, sinks in those that slide alone."""
    same = {"swa_head_dim": "head_dim", "swa_v_head_dim": "v_head_dim", "swa_num_attention_heads": "num_attention_heads"}
    return next((key for key, other in same.items() if config.get(key, config.get(other)) != config.get(other)), "")


FAMILIES = (
    Family(
        "mimo2",
        ("mimo_v2_flash",),
        SHARED,
        bare=MIMO,
        keys=mimo,
        slides=True,
        turns_part=True,
        refuses=mimo_refuses,
        reads={"rms_norm_eps": ("layernorm_epsilon", "rms_norm_eps")},
        defaults={"partial_rotary_factor": 0.334},
        only={
            "topk_method": ("noaux_tc",),
            "scoring_func": ("sigmoid",),
            "add_swa_attention_sink_bias": (True,),
            "add_full_attention_sink_bias": (False,),
            "n_shared_experts": (0,),
            "attention_bias": (False,),
        },
    ),
    Family(
        "laguna",
        ("laguna",),
        LAGUNA,
        bare=BIAS | {"mlp.experts.e_score_correction_bias": "exp_probs_b.bias"},
        keys=laguna,
        slides=True,
        turns_part=True,
        refuses=laguna_refuses,
        only={"moe_router_logit_softcapping": (0, 0.0), "attention_bias": (False,), "moe_apply_router_weight_on_input": (False,)},
    ),
    Family("mellum", ("mellum",), SHARED, keys=counts, slides=True, refuses=mellum, only={"norm_topk_prob": (True,)}),
    Family(
        "llama4",
        ("llama4_text",),
        LLAMA4,
        bare=TURNED,
        keys=llama4,
        refuses=llama4_refuses,
        pieces={
            "ffn_turned_exps": (
                Slice("ffn_gate_exps", columns=side(0), turned=True),
                Slice("ffn_up_exps", columns=side(1), turned=True),
            ),
            "ffn_turned_down_exps": (Slice("ffn_down_exps", turned=True),),
        },
        only={"no_rope_layer_interval": (4,), "attention_bias": (False,)},
    ),
    Family(
        "afmoe",
        ("afmoe",),
        TRINITY,
        bare={"mlp.expert_bias": "exp_probs_b.bias"},
        keys=copied(TRINITY_KEYS),
        slides=True,
        defaults={"mup_enabled": False},
        only={"mup_enabled": (True,), "score_func": ("sigmoid",), "route_norm": (True,), "n_group": (1,)},
    ),
    Family(
        "exaone-moe",
        ("exaone_moe",),
        SHARED,
        keys=k_exaone,
        slides=True,
        refuses=dense_first,
        bare=BIAS | {"mlp.e_score_correction_bias": "exp_probs_b.bias"},
        only={"scoring_func": ("sigmoid",)},
    ),
)
