"""Llama 1-3.3, Mistral and the many models of that shape, some under other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families._pieces import Config, Floats, Metadata, Slice


def every_fourth(config: Config) -> str:
    """SmolLM3's graph leaves every fourth layer unrotated, and none slides; `no_rope_layers` has a 1 for those that are rotated."""
    rotated = config.get("no_rope_layers")
    usual = [int((layer + 1) % 4 != 0) for layer in range(len(rotated))] if isinstance(rotated, list) else rotated
    if rotated is None and config.get("no_rope_layer_interval", 4) != 4:
        return "no_rope_layer_interval"
    if config.get("use_sliding_window") and config.get("sliding_window"):
        return "use_sliding_window"
    return "" if rotated is None or rotated == usual else "no_rope_layers"


def listed_windows(config: Config) -> Metadata:
    """Layers slide where `layer_types` says so, as in mlx_lm and vLLM; a window alone does nothing."""
    slides, window = (
        np.array([kind == "sliding_attention" for kind in config.get("layer_types") or ()]),
        config.get("sliding_window"),
    )
    return {"attention.sliding_window": window, "attention.sliding_window_pattern": slides} if slides.any() else {}


def ministral(config: Config) -> Metadata:
    """Queries grow with the logarithm of their position."""
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return {}
    return {
        "attention.temperature_scale": rope.get("llama_4_scaling_beta"),
        "rope.scaling.yarn_log_multiplier": rope.get("mscale_all_dim"),
    }


def thirds(config: Config, values: Floats) -> Floats:
    """-1, 0 or 1 times the mean size."""
    size = np.maximum(np.abs(values).mean(dtype=np.float64), SMALLEST).astype(np.float32)
    return np.asarray(np.clip(np.rint(values / size), -1.0, 1.0) * size, np.float32)


def online(config: Config) -> str:
    """Of BitNets whose weights transformers quantises at run time."""
    quantised = config.get("quantization_config") or {}
    return ONLINE if quantised.get("quant_method") == "bitnet" and quantised.get("quantization_mode") == "online" else ""


ONLINE = "bitnet, online"
SMALLEST = 1e-5  # mean size of BitNet's weights
THIRDS = dict.fromkeys(
    ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), (Slice(values=thirds, keeps=True),)
)
XIELU = {f"mlp.act_fn.{part}": f"xielu.{part}" for part in ("alpha_p", "alpha_n", "beta", "eps")}
SUB_NORMS = {
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
    "self_attn.inner_attn_ln": "attn_sub_norm",
    "mlp.ffn_layernorm": "ffn_sub_norm",
}

DYNAMIC = {"dynamic"}  # changes nothing up to the length that the model was trained for

BITNET = Family(
    "bitnet",
    ("bitnet",),
    INNER | SUB_NORMS,
    activations=("relu2", "silu"),
    keys=lambda config: {"hidden_act": config.get("hidden_act")},
    instead=online,
)
FAMILIES = (
    Family("llama", ("llama", "internlm3"), INNER, paired_rows=True, own_ropes=DYNAMIC, keys=listed_windows),
    Family("llama", ("mistral",), INNER, paired_rows=True, slides=True, own_ropes=DYNAMIC),
    Family(
        "mistral3", ("ministral3",), INNER, paired_rows=True, slides=True, keys=ministral, only={"rope_parameters.mscale": (1,)}
    ),
    Family("arcee", ("arcee",), INNER, activations=("relu2",), paired_rows=True),
    Family("ernie4_5", ("ernie4_5",), INNER),
    Family("seed_oss", ("seed_oss",), INNER | {"post_attention_layernorm": "post_attention_norm"}),
    Family("smollm3", ("smollm3",), INNER, paired_rows=True, refuses=every_fourth),
    Family(
        "apertus",
        ("apertus",),
        INNER | {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"},
        activations=("xielu",),
        values=XIELU,
        only={"post_norm": (False,), "qk_norm": (True,)},
    ),
    BITNET,
    replace(BITNET, model_types=(ONLINE,), pieces=THIRDS),
)
