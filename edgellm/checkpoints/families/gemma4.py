"""Gemma 3n and Gemma 4: per-layer rows, layers that share keys, experts; of models that see and hear, the language model."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any  # of parsed JSON

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.families._family import OUTER, Family
from edgellm.checkpoints.families._pieces import Config, Metadata, copied
from edgellm.checkpoints.families.gemma3 import PARTS

LONG_HEAD = 512  # of layers that see everything, where a Gemma 4 configuration says nothing
NEVER = 1e30  # divisor of the frequency of a pair that is not rotated
FULL, SLIDING = "full_attention", "sliding_attention"
PERIOD = 6  # every sixth layer sees everything, where nothing is said
MANY = 1 << 12  # no model has as many layers
ROWS = {"per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm"}
TABLES = OUTER | {
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}
GEMMA4 = (
    PARTS
    | ROWS
    | {
        "router.proj": "ffn_gate_inp",
        "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
        "post_feedforward_layernorm_1": "post_ffw_norm_1",
        "post_feedforward_layernorm_2": "post_ffw_norm_2",
    }
)
BARE4 = {
    "layer_scalar": "layer_output_scale.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
}
GEMMA3N = (
    PARTS
    | ROWS
    | {
        "altup.correction_coefs": "altup_correct_coef",
        "altup.prediction_coefs": "altup_predict_coef",
        "altup.modality_router": "altup_router",
        "altup.router_norm": "altup_router_norm",
        "laurel.linear_left": "laurel_l",
        "laurel.linear_right": "laurel_r",
        "laurel.post_laurel_norm": "laurel_post_norm",
    }
)


def _common(config: Config) -> Metadata:
    return {
        "attention.shared_kv_layers": config.get("num_kv_shared_layers") or 0,
        "embedding_length_per_layer_input": config.get("hidden_size_per_layer_input") or 0,
    }


def _kinds(config: Config) -> list[str]:
    """The kind of each layer, [] if unknown; the last layer has full attention, as in transformers."""
    kinds, n = config.get("layer_types"), config.get("num_hidden_layers")
    if kinds is None and isinstance(n, int) and 0 < n < MANY:
        kinds = [FULL if layer % PERIOD == PERIOD - 1 else SLIDING for layer in range(n)]
    return [*kinds[:-1], FULL] if isinstance(kinds, list) and kinds else []


def _full_layers(config: Config) -> Mapping[str, Any]:
    """Settings of full-attention layers, under newer files' names."""
    kinds, own = _kinds(config), config.get("per_layer_config")
    if not isinstance(own, Mapping) or FULL not in kinds:
        return {}
    found = own.get(str(kinds.index(FULL)))
    return found if isinstance(found, Mapping) else {}


def _long_head(config: Config) -> object:
    """Newer files that list what is particular to layers, and no length among it, have one length for all."""
    own = config.get("head_dim") if isinstance(config.get("per_layer_config"), Mapping) else None
    return config.get("global_head_dim") or _full_layers(config).get("head_dim") or own or LONG_HEAD


experts = copied(
    {"expert_count": "num_experts", "expert_used_count": "top_k_experts", "expert_feed_forward_length": "moe_intermediate_size"}
)


def gemma4(config: Config) -> Metadata:
    """Keys for heads of two lengths, wide layers, and experts."""
    long, short, shared = _long_head(config), config.get("head_dim"), config.get("num_kv_shared_layers") or 0
    keys = _common(config) | {
        "attention.key_length": long,
        "attention.value_length": long,
        "attention.key_length_swa": short,
        "attention.value_length_swa": short,
        "rope.dimension_count": long,
        "rope.dimension_count_swa": short,
    }
    kinds, n_kv, width = _kinds(config), config.get("num_key_value_heads"), config.get("intermediate_size")
    if kinds:
        keys["attention.sliding_window_pattern"] = np.array([kind == SLIDING for kind in kinds])
    few = config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None
    few = few or _full_layers(config).get("num_key_value_heads")
    if few and n_kv and kinds:
        keys["attention.head_count_kv"] = np.array([few if kind == FULL else n_kv for kind in kinds], np.int32)
    if config.get("use_double_wide_mlp") and kinds and isinstance(width, int) and isinstance(shared, int):
        keys["feed_forward_length"] = np.array([width] * (len(kinds) - shared) + [2 * width] * shared, np.int32)
    of_experts = experts(config)
    return keys | (of_experts if config.get("enable_moe_block") else {})


def rotated(config: Config) -> dict[str, npt.NDArray[np.float32]]:
    """Of the pairs of long heads a part is rotated; the others get no frequency, as in llama.cpp's files."""
    ropes, long = config.get("rope_parameters"), _long_head(config)
    own = ropes.get(FULL) if isinstance(ropes, Mapping) else None
    share = own.get("partial_rotary_factor", 1.0) if isinstance(own, Mapping) else 0.25
    if not isinstance(long, int) or not isinstance(share, (int, float)):
        return {}
    return {"rope_freqs.weight": np.where(np.arange(long // 2) < int(share * long // 2), 1.0, NEVER).astype(np.float32)}


def refuses4(config: Config) -> str:
    if config.get("attention_bias"):
        return "attention_bias"
    return "use_bidirectional_attention" if config.get("use_bidirectional_attention") == "all" else ""


def gemma3n(config: Config) -> Metadata:
    """Sparsity becomes the number of deviations above which that share of a normal distribution lies."""
    keys = _common(config) | {f"altup.{key}": config.get(f"altup_{key}") for key in ("num_inputs", "active_idx")}
    shares, widths = config.get("activation_sparsity_pattern"), config.get("intermediate_size")
    if isinstance(shares, list) and all(isinstance(share, (int, float)) and 0 <= share < 1 for share in shares):
        normal = NormalDist()
        deviations = [normal.inv_cdf(share) if share else -np.inf for share in shares]
        keys["activation_sparsity_scale"] = np.array(deviations, np.float32)
    if isinstance(widths, list) and all(isinstance(width, int) for width in widths):
        keys["feed_forward_length"] = widths[0] if len(set(widths)) == 1 else np.array(widths, np.int32)
    return keys


def refuses3n(config: Config) -> str:
    return "altup_correct_scale" if config.get("altup_correct_scale") is False else ""


FAMILIES = (
    Family(
        "gemma4",
        ("gemma4_text", "gemma4"),
        GEMMA4,
        TABLES,
        activations=("gelu_pytorch_tanh",),
        slides=True,
        bare=BARE4,
        keys=gemma4,
        made=rotated,
        refuses=refuses4,
        own_ropes={"proportional"},
        merged_tokenizer="gemma4",
    ),
    Family(
        "gemma3n",
        ("gemma3n_text", "gemma3n"),
        GEMMA3N,
        TABLES | {"altup_projections.*": "altup_proj", "altup_unembed_projections.*": "altup_unembd_proj"},
        activations=("gelu_pytorch_tanh",),
        slides=True,
        bare={"altup.correct_output_scale": "altup_correct_scale.weight"},
        padded={"per_layer_token_embd.weight"},
        keys=gemma3n,
        refuses=refuses3n,
    ),
)
