"""The language models of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Muse Glimmer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.families._answering import rerankers, reranking
from edgellm.checkpoints.families._family import INNER, OTHERS, Family
from edgellm.checkpoints.families._pieces import Config, Metadata, Order, Rows, Shape, Slice, half, rows_of
from edgellm.checkpoints.families.experts import EXPERTS, counts, normalised
from edgellm.checkpoints.families.qwen2 import windows

FACTORS, SECTIONS = ("rope_scaling", "rope_parameters"), 4
PLAIN_ROPE = {"mrope"}  # old name of angles that are not scaled


def sections(config: Config) -> Metadata:
    """The numbers of a head's pairs that are rotated by time, height and width; without images these are equal."""
    found = next((rope["mrope_section"] for key in FACTORS if "mrope_section" in (rope := config.get(key) or {})), None)
    return {"rope.dimension_sections": None if found is None else np.array([*found, 0, 0, 0, 0][:SECTIONS], np.int32)}


def deep(config: Config) -> Metadata:
    """Qwen3-VL's images enter several layers; llama.cpp needs their number."""
    eyes = config.get("vision_config") or {}
    return sections(config) | {"n_deepstack_layers": len(eyes.get("deepstack_visual_indexes") or ())}


def from_the_right(config: Config, shape: Shape) -> bool:
    """True if experts multiply from the right, as on the hub; transformers 5 writes them the other way round, too."""
    return bool(shape[-2] == config["hidden_size"])


def down_from_the_right(config: Config, shape: Shape) -> bool:
    return bool(shape[-1] == config["hidden_size"])


def run(which: int, *, columns: bool) -> Order:
    """The first or the second half of what gate and up share, all of the other dimension."""

    def order(config: Config, shape: Shape) -> Rows:
        if from_the_right(config, shape) is columns:
            return np.arange(shape[-1]).reshape(2, -1)[which] if columns else half(which)(config, shape)
        return np.arange(shape[-1] if columns else rows_of(shape))

    return order


def experts(config: Config) -> Metadata:
    return deep(config) | counts(config)


EXPERT_NAMES = {"mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight", "mlp.experts.down_proj": "ffn_down_exps.weight"}
BOTH_WAYS = {
    "ffn_gate_up_exps": tuple(
        Slice(f"ffn_{part}_exps", run(i, columns=False), run(i, columns=True), turned=from_the_right)
        for i, part in enumerate(("gate", "up"))
    ),
    "ffn_down_exps": (Slice(turned=down_from_the_right),),
}

MUSE = INNER | {
    "self_attn.gate_proj": "attn_gate",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
EYES = r"|model\.vision_\w+\..*"


def full_layers(config: Config) -> list[bool]:
    """Every fourth from the last one on, where nothing is said."""
    n, kinds = config["num_hidden_layers"], config.get("layer_types")
    return [(n - 1 - layer) % 4 == 0 for layer in range(n)] if kinds is None else [kind == "full_attention" for kind in kinds]


def muse(config: Config) -> Metadata:
    return {
        "logit_scale": config.get("output_multiplier"),
        "attention.sliding_window_pattern": np.array([not full for full in full_layers(config)]),
    }


def muse_refuses(config: Config) -> str:
    """Layers that slide rotate with one base, and no others do."""
    base = (config.get("rope_parameters") or {}).get("rope_theta", 10000.0)
    turned = [0 if full else base for full in full_layers(config)]
    return "" if config.get("layer_rope_theta") in (None, turned) else "layer_rope_theta"


def head_norms(config: Config) -> dict[str, npt.NDArray[np.float32]]:
    """A factor of queries, as a weight of their norm."""
    n, size = config["num_hidden_layers"], config["head_dim"]
    factors = {"q": np.full(size, config["qk_scale_factor"], np.float32), "k": np.ones(size, np.float32)}
    return {f"blk.{layer}.attn_{part}_norm.weight": weight for layer in range(n) for part, weight in factors.items()}


FAMILIES = (
    Family(
        "muse-glimmer",
        ("muse_glimmer", "muse_glimmer_text"),
        MUSE,
        paired_rows=True,
        norms_from_zero=True,
        slides=True,
        kept_norms={"output_norm", "attn_q_norm", "attn_k_norm"},
        skipped=OTHERS + EYES,
        keys=muse,
        made=head_norms,
        refuses=muse_refuses,
        only={"post_norm_eps": (1e-8,), "attention_bias": (False,)},
    ),
    Family(
        "qwen2vl",
        ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
        INNER,
        keys=sections,
        own_ropes=PLAIN_ROPE,
        refuses=windows,
    ),
    Family(
        "qwen3vl",
        ("qwen3_vl", "qwen3_vl_text"),
        INNER,
        keys=deep,
        own_ropes=PLAIN_ROPE,
        instead=lambda config: reranking(config, "qwen3_vl"),
    ),
    *rerankers("qwen3vl", "qwen3_vl", refuses=windows, keys=deep, own_ropes=PLAIN_ROPE),
    Family(
        "qwen3vlmoe",
        ("qwen3_vl_moe", "qwen3_vl_moe_text"),
        INNER | EXPERTS,
        bare=EXPERT_NAMES,
        pieces=BOTH_WAYS,
        keys=experts,
        refuses=normalised(True),
        defaults={"norm_topk_prob": True},
        own_ropes=PLAIN_ROPE,
    ),
)
