"""What transformers calls the tensors of models with Mamba layers, for make_gold.py."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

_MIXER = {f"ssm_{part}": f"{{}}.{name}" for part, name in (
    ("in", "in_proj"), ("x", "x_proj"), ("dt", "dt_proj"), ("out", "out_proj"), ("conv1d", "conv1d"), ("norm", "norm"),
    ("a", "A_log"), ("d", "D"), ("dt_norm", "dt_layernorm"), ("b_norm", "b_layernorm"), ("c_norm", "c_layernorm"))}


def _mixer(name: str) -> dict[str, str]:
    return {part: form.format(name) for part, form in _MIXER.items()}


def _in(name: str, parts: Mapping[str, str]) -> dict[str, str]:
    return {part: f"{name}.{theirs}" for part, theirs in parts.items()}


_FFN = {f"ffn_{part}": f"{part}_proj" for part in ("gate", "up", "down")}
_MOE = {"ffn_gate_inp": "router", "ffn_down_exps": "experts.down_proj"}
OWN_NAMES: dict[str, dict[str, str]] = {
    "mamba": _mixer("mixer") | {"attn_norm": "norm", "token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f"},
    "granitehybrid": _mixer("mamba") | _in("block_sparse_moe", _MOE) | {
        "ffn_down": "shared_mlp.output_linear", "ffn_down_shexp": "shared_mlp.output_linear"},
    "falcon-h1": _mixer("mamba") | _in("feed_forward", _FFN) | {
        "ffn_norm": "pre_ff_layernorm", "output_norm": "model.final_layernorm"},
    "nemotron_h": _mixer("mixer") | _in("mixer", _FFN | {f"attn_{n}": f"{n[0]}_proj" for n in ("q", "k", "v", "output")} | {
        "ffn_gate_inp": "gate", "ffn_up_exps": "experts.up_proj", "ffn_down_exps": "experts.down_proj",
        "ffn_up_shexp": "shared_experts.up_proj", "ffn_down_shexp": "shared_experts.down_proj",
        "ffn_latent_down": "fc1_latent_proj", "ffn_latent_up": "fc2_latent_proj",
        "exp_probs_b": "gate.e_score_correction_bias"}) | {
        "attn_norm": "norm", "token_embd": "model.embeddings", "output_norm": "model.norm_f"},
    "jamba": _mixer("mamba") | _in("feed_forward", _FFN | _MOE) | {"ffn_norm": "pre_ff_layernorm",
                                                                   "output_norm": "model.final_layernorm"},
}
OWN_NAMES["mamba2"] = OWN_NAMES["mamba"]
OWN_NAMES["nemotron_h_moe"] = OWN_NAMES["nemotron_h"]
OWN_NAMES["bamba"] = OWN_NAMES["falcon-h1"]
DT_BIAS = {"mamba2": "mixer", "nemotron_h": "mixer", "nemotron_h_moe": "mixer", "granitehybrid": "mamba", "bamba": "mamba",
           "falcon-h1": "mamba"}                 # whose scans have a step for each head
GATES_AND_PRODUCTS = {"granitehybrid": "block_sparse_moe", "granitemoe": "block_sparse_moe", "jamba": "feed_forward",
                      "lfm2moe": "feed_forward"}             # whose experts have them in one tensor; others: "mlp"
SHARED_GRANITE = ("ffn_gate", "ffn_up", "ffn_gate_shexp", "ffn_up_shexp")


def shared_granite(name: str, values: np.ndarray, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The dense or shared feed-forward's gate and product, which are one tensor there."""
    part = name.split(".")[2]
    if part.startswith("ffn_gate"):
        both = np.concatenate([values, arrays[name.replace("gate", "up")]])
        yield f"model.layers.{name.split('.')[1]}.shared_mlp.input_linear.weight", both
