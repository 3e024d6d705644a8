"""Llama 1-3.3, Mistral and the many models of that shape, some under other names."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # of parsed JSON

from ._family import INNER, Family

Config = Mapping[str, Any]


def every_fourth(config: Config) -> str:
    """SmolLM3's graph leaves every fourth layer unrotated; `no_rope_layers` has a 1 for those that are rotated."""
    rotated = config.get("no_rope_layers")
    usual = [int((layer + 1) % 4 != 0) for layer in range(len(rotated))] if isinstance(rotated, list) else rotated
    return "" if rotated is None or rotated == usual else "no_rope_layers"


def ministral(config: Config) -> dict[str, object]:
    """Queries grow with the logarithm of their position."""
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return {}
    return {"attention.temperature_scale": rope.get("llama_4_scaling_beta"),
            "rope.scaling.yarn_log_multiplier": rope.get("mscale_all_dim")}


XIELU = {f"mlp.act_fn.{part}": f"xielu.{part}" for part in ("alpha_p", "alpha_n", "beta", "eps")}
SUB_NORMS = {"self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm",
             "self_attn.inner_attn_ln": "attn_sub_norm", "mlp.ffn_layernorm": "ffn_sub_norm"}

FAMILIES = (
    Family("llama", ("llama",), INNER, paired_rows=True),
    Family("llama", ("internlm3",), INNER, paired_rows=True, own_ropes=frozenset({"dynamic"})),
    Family("llama", ("mistral",), INNER, paired_rows=True, slides=True),
    Family("mistral3", ("ministral3",), INNER, paired_rows=True, slides=True, keys=ministral),
    Family("arcee", ("arcee",), INNER, activations=("relu2",), paired_rows=True),
    Family("ernie4_5", ("ernie4_5",), INNER),
    Family("seed_oss", ("seed_oss",), INNER | {"post_attention_layernorm": "post_attention_norm"}),
    Family("smollm3", ("smollm3",), INNER, paired_rows=True, refuses=every_fourth),
    Family("apertus", ("apertus",), INNER | {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"},
           activations=("xielu",), values=XIELU, only={"post_norm": (False,), "qk_norm": (True,)}),
    Family("bitnet", ("bitnet",), INNER | SUB_NORMS, activations=("relu2", "silu"),
           keys=lambda config: {"hidden_act": config.get("hidden_act")}),
)
