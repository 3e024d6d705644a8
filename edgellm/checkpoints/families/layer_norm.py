"""Decoders with layer norms: BLOOM, Falcon, GPT-NeoX, MPT, StarCoder 2, Phi-1.5 and 2, StableLM, Nemotron, Command R, OLMo.

Cohere 2 with experts has layer norms or RMS norms.
"""

from __future__ import annotations

from typing import Any  # of parsed JSON

import numpy as np

from edgellm.checkpoints.families._family import INNER, OUTER, Family
from edgellm.checkpoints.families._pieces import Config, Metadata, Rows, Shape, Slice, by_heads, copied, own_heads
from edgellm.checkpoints.families.routed import SHARED

BLOOM = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
    "ln_mlp": "attn_norm",
    "ln_attn": "attn_norm_2",
}
BLOOM_ENDS = {
    "word_embeddings": "token_embd",
    "word_embeddings_layernorm": "token_embd_norm",
    "ln_f": "output_norm",
    "lm_head": "output",
}
NEOX = {
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
NEOX_ENDS = {"embed_in": "token_embd", "final_layer_norm": "output_norm", "embed_out": "output"}
MPT = {
    "norm_1": "attn_norm",
    "norm_2": "ffn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "ffn.up_proj": "ffn_up",
    "ffn.down_proj": "ffn_down",
}
PHI = INNER | {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
STABLE = INNER | {"self_attn.q_layernorm.norms.*": "attn_q_norm", "self_attn.k_layernorm.norms.*": "attn_k_norm"}
EPSILON: dict[str, tuple[str, ...]] = {"layer_norm_epsilon": ("layer_norm_eps",), "rms_norm_eps": ()}
OLMO_EPSILON = 1e-5  # its definition has it in its code
FALCON_CONTEXT = 2048  # likewise, of older files


def four_times(config: Config) -> Metadata:
    """A feed-forward whose width no configuration says."""
    return {"feed_forward_length": config.get("expansion_ratio", 4) * config["hidden_size"]}


def falcon(config: Config) -> Metadata:
    wide = config.get("ffn_hidden_size")
    return (four_times(config) if wide is None else {"feed_forward_length": wide}) | {
        "attention.head_count_kv": falcon_kv_heads(config)
    }


def falcon_kv_heads(config: Config) -> Any:
    if config.get("new_decoder_architecture"):
        return config.get("num_kv_heads") or config["num_attention_heads"]
    return 1 if config.get("multi_query", True) else config["num_attention_heads"]


def falcon_rows(config: Config, shape: Shape) -> Rows:
    return by_heads(config, shape, falcon_kv_heads(config))


def mpt(config: Config) -> Metadata:
    attention = config.get("attn_config") or {}
    return four_times(config) | {
        "attention.clamp_kqv": attention.get("clip_qkv"),
        "attention.max_alibi_bias": attention.get("alibi_bias_max", 8),
    }


logit_scale = copied({"logit_scale": "logit_scale"})


def cohere_experts(config: Config) -> Metadata:
    """First layers without experts may be wider; where no list says it, they see everything, and every fourth one behind them."""
    n, width = config["num_hidden_layers"], config["intermediate_size"]
    types, period = config.get("mlp_layer_types"), config.get("sliding_window_pattern", 4)
    dense = types.count("dense") if types else config.get("first_k_dense_replace") or 0
    kinds = config.get("layer_types")
    slides = (
        [layer >= dense and (layer - dense + 1) % period != 0 for layer in range(n)]
        if kinds is None
        else [kind == "sliding_attention" for kind in kinds]
    )
    return logit_scale(config) | {
        "feed_forward_length": config.get("prefix_dense_intermediate_size") or width,
        "expert_feed_forward_length": width,
        "expert_count": config.get("num_experts"),
        "expert_used_count": config.get("num_experts_per_tok"),
        "expert_shared_count": config.get("num_shared_experts"),
        "leading_dense_block_count": dense,
        "expert_weights_norm": bool(config.get("norm_topk_prob", True)),
        "attention.sliding_window_pattern": np.array(slides),
    }


def cohere_refuses(config: Config) -> str:
    types = config.get("mlp_layer_types") or []
    return "" if types == sorted(types) else "mlp_layer_types"  # dense layers come first


def parallel(config: Config) -> Metadata:
    return {"use_parallel_residual": bool(config.get("use_parallel_residual", True)), "hidden_act": config.get("hidden_act")}


def clamped(config: Config) -> Metadata:
    return {"attention.clamp_kqv": config.get("clip_qkv"), "attention.layer_norm_epsilon": OLMO_EPSILON}


FAMILIES = (
    Family(
        "bloom",
        ("bloom",),
        BLOOM,
        BLOOM_ENDS,
        activations=("gelu",),
        keys=four_times,
        pieces={"attn_qkv": (Slice(rows=own_heads),)},
        only={"apply_residual_connection_post_layernorm": (False,)},
        reads={
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "hidden_size": ("n_embed", "hidden_size"),
            "max_position_embeddings": ("seq_length", "max_position_embeddings"),
            "num_key_value_heads": (),
            "head_dim": (),
            "rms_norm_eps": (),
            "intermediate_size": (),
        },
        defaults={"seq_length": 2048, "layer_norm_epsilon": 1e-5},
    ),
    Family(
        "falcon",
        ("falcon", "RefinedWeb", "RefinedWebModel"),
        BLOOM,
        BLOOM_ENDS,
        activations=("gelu",),
        keys=falcon,
        pieces={"attn_qkv": (Slice(rows=falcon_rows),)},
        only={"alibi": (False,), "parallel_attn": (True,), "bias": (False,)},
        reads={
            "num_hidden_layers": ("num_hidden_layers", "n_layer"),
            "num_attention_heads": ("num_attention_heads", "n_head"),
            "num_kv_heads": ("num_kv_heads", "n_head_kv"),
            "head_dim": (),
            "rms_norm_eps": (),
            "intermediate_size": (),
            "hidden_act": ("activation",),
        },
        defaults={"max_position_embeddings": FALCON_CONTEXT, "layer_norm_epsilon": 1e-5},
    ),
    Family(
        "gptneox",
        ("gpt_neox",),
        NEOX,
        NEOX_ENDS,
        activations=("gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh"),
        keys=parallel,
        pieces={"attn_qkv": (Slice(rows=own_heads),)},
        skipped=r".*\.attention\.(?:masked_)?bias|.*\.rotary_emb\.inv_freq",
        reads=EPSILON
        | {
            "partial_rotary_factor": ("rope_parameters.partial_rotary_factor", "partial_rotary_factor", "rotary_pct"),
            "rope_theta": ("rope_theta", "rotary_emb_base"),
            "num_key_value_heads": (),
            "head_dim": (),
        },
        turns_part=True,
        defaults={"rotary_pct": 0.25, "layer_norm_eps": 1e-5},
    ),
    Family(
        "mpt",
        ("mpt",),
        MPT,
        {"wte": "token_embd", "norm_f": "output_norm", "lm_head": "output"},
        activations=("gelu",),
        keys=mpt,
        measured={"feed_forward_length": "ffn_up"},
        only={
            "attn_config.alibi": (True,),
            "attn_config.qk_ln": (False,),
            "attn_config.prefix_lm": (False,),
            "attn_config.softmax_scale": (),
            "logit_scale": (),
            "attn_config.kv_n_heads": (),
        },
        reads={
            "num_hidden_layers": ("n_layers",),
            "num_attention_heads": ("n_heads",),
            "hidden_size": ("d_model",),
            "max_position_embeddings": ("max_seq_len",),
        },
        defaults={"layer_norm_epsilon": 1e-5},
    ),
    Family(
        "starcoder2",
        ("starcoder2",),
        INNER | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
        slides=True,
        activations=("gelu_pytorch_tanh",),
        reads={"layer_norm_epsilon": ("norm_epsilon",), "rms_norm_eps": ()},
    ),
    Family(
        "phi2",
        ("phi",),
        PHI,
        OUTER | {"final_layernorm": "output_norm"},
        activations=("gelu_new", "gelu_pytorch_tanh"),
        reads=EPSILON,
        only={"qk_layernorm": (False,)},
        defaults={"partial_rotary_factor": 0.5},
        turns_part=True,
    ),
    Family(
        "stablelm",
        ("stablelm",),
        STABLE,
        reads=EPSILON | {"partial_rotary_factor": ("partial_rotary_factor", "rope_pct")},
        keys=parallel,
        turns_part=True,
        defaults={"layer_norm_eps": 1e-5, "use_parallel_residual": False, "rope_pct": 0.25},
    ),
    Family(
        "nemotron",
        ("nemotron",),
        INNER,
        activations=("relu2",),
        norms_from_zero=True,
        turns_part=True,
        defaults={"rope_pct": 0.5},
        reads={
            "layer_norm_epsilon": ("norm_eps",),
            "rms_norm_eps": (),
            "partial_rotary_factor": ("partial_rotary_factor", "rope_percent", "rope_pct"),
        },
    ),
    Family("jais2", ("jais2",), INNER, activations=("relu2",), reads=EPSILON),
    Family("command-r", ("cohere",), INNER, reads=EPSILON, keys=logit_scale),
    Family(
        "cohere2",
        ("cohere2",),
        INNER,
        reads=EPSILON,
        keys=logit_scale,
        slides=True,
        only={
            "order_of_interleaved_layers": ("local_attn_first",),
            "use_parallel_block": (True,),
            "rotary_pct": (1,),
            "use_gated_activation": (True,),
            "position_embedding_type": ("rope_gptj",),
        },
    ),
    Family(
        "cohere2moe",
        ("cohere2_moe",),
        SHARED,
        reads={"layer_norm_epsilon": ("layer_norm_eps",)},
        keys=cohere_experts,
        slides=True,
        refuses=cohere_refuses,
        only={
            "expert_selection_fn": ("sigmoid",),
            "shared_expert_combination_strategy": ("average",),
            "prefix_dense_sliding_window_pattern": (1,),
        },
    ),
    Family("olmo", ("olmo",), INNER, reads={"rms_norm_eps": ()}, keys=clamped, paired_rows=True),
)
