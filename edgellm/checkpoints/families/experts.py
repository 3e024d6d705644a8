"""Mixtures of experts: Mixtral, Phi, Qwen 2 and 3, OLMoE, Granite; and dense Granite, whose keys they share."""

from __future__ import annotations

from typing import Any  # of parsed JSON

import numpy as np

from edgellm.checkpoints.families._family import INNER, Family, scaling
from edgellm.checkpoints.families._pieces import FLAT, Config, Metadata, Slice, copied, half
from edgellm.checkpoints.families.qwen2 import windows

EXPERTS = (
    {"mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}
    | {f"mlp.experts.*.{part}_proj": f"ffn_{part}_exps" for part in ("gate", "up", "down")}
    | {f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
)
MIXTRAL = {"block_sparse_moe.gate": "ffn_gate_inp"} | {
    f"block_sparse_moe.experts.*.w{number}": f"ffn_{part}_exps" for number, part in ((1, "gate"), (2, "down"), (3, "up"))
}
GRANITE = {
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
}
SHARED_MLP = {"shared_mlp.output_linear": "ffn_down", "shared_mlp.input_linear": "ffn_gate_up"}
SHARED_EXPERT = {theirs: f"{ours}_shexp" for theirs, ours in SHARED_MLP.items()}
HALVES: dict[str, tuple[Slice, ...]] = {
    f"ffn_gate_up_{kind}": (Slice(f"ffn_gate_{kind}", half(0)), Slice(f"ffn_up_{kind}", half(1))) for kind in ("exps", "shexp")
}

GRANITE_SWA = {
    "block_sparse_moe.router": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "shared_mlp.input_linear": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}
SWA_EXPERTS = {
    "self_attn.sinks": "attn_sinks.weight",
    "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
}
SLIDING = "sliding_attention"


sizes = copied(
    {
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    }
)
factors = copied(
    {
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "attention.scale": "attention_multiplier",
        "logit_scale": "logits_scaling",
    }
)


def counts(config: Config) -> Metadata:
    """The numbers of experts, and of those that a token takes."""
    return {"expert_count": config.get("num_local_experts", config.get("num_experts"))} | sizes(config)


def granite(config: Config) -> Metadata:
    return counts(config) | factors(config)


def granite_shared(config: Config) -> Metadata:
    return granite(config) | {"expert_shared_feed_forward_length": config.get("shared_intermediate_size")}


def granite_swa(config: Config) -> Metadata:
    """Layers whose own base is 0 do not rotate."""
    n, bases = config["num_hidden_layers"], config.get("layer_rope_theta")
    kinds = config.get("layer_types") or ["full_attention" if layer % 4 == 0 else SLIDING for layer in range(n)]
    turned = config.get("no_rope_layers") if bases is None else [base != 0 for base in bases]
    return granite(config) | {
        "attention.sliding_window": config.get("sliding_window", 128),
        "attention.sliding_window_pattern": np.array([kind == SLIDING for kind in kinds]),
        "attention.rope_pattern": None if turned is None else np.array([bool(each) for each in turned]),
        "expert_shared_feed_forward_length": config.get("shared_intermediate_size") or None,
    }


def one_base(config: Config) -> str:
    """GGUF has one base for all layers that rotate."""
    base = (config.get("rope_parameters") or {}).get("rope_theta", config.get("rope_theta", 10000.0))
    return "" if {each for each in config.get("layer_rope_theta") or () if each} <= {base} else "layer_rope_theta"


def normalised(wanted: bool) -> Any:
    """Refuses weights of experts that sum to 1 where the graph's do not, or the other way round; and windows in any layers."""

    def refuses(config: Config) -> str:
        found = windows({**config, "max_window_layers": 0})
        return found if bool(config.get("norm_topk_prob", False)) is wanted else "norm_topk_prob"

    return refuses


def phimoe(config: Config) -> Metadata:
    """The size of cos and sin is a setting, where others have it follow from the contexts."""
    return counts(config) | {"rope.scaling.attn_factor": scaling(config).get("long_mscale")}


def one_size(config: Config) -> str:
    return "" if scaling(config).get("short_mscale") == scaling(config).get("long_mscale") else "rope_scaling"


FAMILIES = (
    Family(
        "phimoe",
        ("phimoe",),
        INNER | MIXTRAL,
        keys=phimoe,
        slides=True,
        refuses=one_size,
        only={"router_jitter_noise": (0.01,), "num_experts_per_tok": (2,)},
    ),
    Family("llama", ("mixtral",), INNER | MIXTRAL, paired_rows=True, slides=True, keys=counts),
    Family("qwen3moe", ("qwen3_moe",), INNER | EXPERTS, keys=counts, refuses=normalised(True)),
    Family(
        "qwen2moe", ("qwen2_moe",), INNER | EXPERTS, keys=counts, refuses=normalised(False), pieces={"ffn_gate_inp_shexp": FLAT}
    ),
    Family("olmoe", ("olmoe",), INNER | EXPERTS, keys=counts, refuses=normalised(False), only={"clip_qkv": ()}),
    Family("granite", ("granite",), INNER, paired_rows=True, keys=granite),
    Family(
        "granite_swa",
        ("granite_swa", "granitemoe_swa"),
        INNER | GRANITE_SWA,
        bare=SWA_EXPERTS,
        paired_rows=True,
        keys=granite_swa,
        slides=True,
        refuses=one_base,
    ),
    Family("granitemoe", ("granitemoe",), INNER | GRANITE, paired_rows=True, keys=granite, pieces=HALVES),
    Family(
        "granitemoe", ("granitemoeshared",), INNER | GRANITE | SHARED_EXPERT, paired_rows=True, keys=granite_shared, pieces=HALVES
    ),
)
