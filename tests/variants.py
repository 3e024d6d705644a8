"""Variants of the architectures whose float32 gold lies in tests/data/gold, made by tests/data/make_gold.py."""
from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tiny_models import tiny_model

GOLD = Path(__file__).resolve().parent / "data" / "gold"
N_TOKENS = 80                    # past the windows (8, 32) and original contexts (64) below
CONTEXT = 512                    # configured context: past one of the original contexts (64, 1024)

YARN = {"{arch}.rope.scaling.type": "yarn", "{arch}.rope.scaling.factor": 8.0,
        "{arch}.rope.scaling.original_context_length": 64}
HF_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
SHORT_FACTORS, LONG_FACTORS = [1.0 + 0.1 * i for i in range(8)], [1.5 + 0.5 * i for i in range(8)]


@dataclass(frozen=True, slots=True)
class Variant:
    """Arguments of `tiny_model`, and what transformers calls the same thing: a class and the rest of its config."""

    arch: str
    family: str                  # the start of transformers' class names
    sizes: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, list[float]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """The model file."""
        tensors = {name: np.asarray(values, np.float32) for name, values in self.tensors.items()}
        return tiny_model(path, self.arch, seed=7, metadata=self.metadata, tensors=tensors, **self.sizes)


def _longrope(context: int, original: int, n_rot: int) -> Variant:
    scale = context / original
    magnitude = float(np.sqrt(1.0 + np.log(scale) / np.log(original)))
    short, long = SHORT_FACTORS[:n_rot // 2], LONG_FACTORS[:n_rot // 2]
    rope = {"rope_type": "longrope", "short_factor": short, "long_factor": long, "rope_theta": 10000.0, "factor": scale,
            "partial_rotary_factor": n_rot / 16, "original_max_position_embeddings": original}
    return Variant(
        "phi3", "Phi3", {"context": context, "n_rot": n_rot},
        {"{arch}.rope.scaling.type": "longrope", "{arch}.rope.scaling.attn_factor": magnitude,
         "{arch}.rope.scaling.original_context_length": original, "{arch}.attention.sliding_window": 0},
        {"rope_factors_long.weight": long, "rope_factors_short.weight": short},
        {"rope_parameters": rope, "partial_rotary_factor": n_rot / 16, "original_max_position_embeddings": original},
    )


def _gemma3(n_layers: int, layer_types: list[str], metadata: Mapping[str, Any], **config: Any) -> Variant:
    rope = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}
    scaling = {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 8.0}
    return Variant("gemma3", "Gemma3", {"n_layers": n_layers, "rope_base": 1e6, "tied": True}, scaling | dict(metadata),
                   config={"layer_types": layer_types, "sliding_window": 8, "rope_parameters": rope} | config)


SLIDING, FULL = "sliding_attention", "full_attention"
VARIANTS = {
    "llama-yarn": Variant("llama", "Llama", {"context": 512}, YARN, config={"rope_parameters": HF_YARN}),
    "llama-yarn-set": Variant(
        "llama", "Llama", {"context": 512},
        YARN | {"{arch}.rope.scaling.yarn_attn_factor": 1.3, "{arch}.rope.scaling.yarn_beta_fast": 16.0,
                "{arch}.rope.scaling.yarn_beta_slow": 2.0},
        config={"rope_parameters": HF_YARN | {"attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}}),
    "llama-linear": Variant(
        "llama", "Llama", {}, {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 4.0},
        config={"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
    "llama-biases-tied": Variant("llama", "Llama", {"biases": True, "tied": True, "head_dim": 24},
                                 config={"attention_bias": True, "mlp_bias": True}),
    "mistral-head-dim": Variant("llama", "Mistral", {"head_dim": 32, "n_kv_heads": 1}, config={"sliding_window": None}),
    "mistral-window": Variant("llama", "Mistral", {"window": 32}, config={"sliding_window": 32}),
    "qwen2-yarn": Variant("qwen2", "Qwen2", {"context": 512}, YARN, config={"rope_parameters": HF_YARN}),
    "qwen3-yarn": Variant("qwen3", "Qwen3", {"context": 512, "head_dim": 32, "tied": True}, YARN,
                          config={"rope_parameters": HF_YARN}),
    "phi3-window": Variant("phi3", "Phi3", {"window": 32}, config={"sliding_window": 32}),
    "phi3-long": _longrope(512, 64, 16),
    "phi3-long-partial": _longrope(512, 64, 8),
    "phi3-short-partial": _longrope(4096, 1024, 8),
    "gemma3-sixth": _gemma3(7, [SLIDING] * 5 + [FULL, SLIDING], {}),
    "gemma3-period": _gemma3(4, [SLIDING, FULL] * 2, {"{arch}.attention.sliding_window_pattern": 2}),
    "gemma3-listed": _gemma3(
        3, [FULL, SLIDING, SLIDING],
        {"{arch}.attention.sliding_window_pattern": [False, True, True], "{arch}.final_logit_softcapping": 2.0},
        final_logit_softcapping=2.0),
    "gpt2-untied": Variant("gpt2", "GPT2"),
    "gpt2-tied": Variant("gpt2", "GPT2", {"tied": True, "n_heads": 8}),
}


def tokens(n_vocab: int) -> npt.NDArray[np.int64]:
    """The ids (N_TOKENS,) that every variant is fed: a fixed walk through the vocabulary."""
    return (np.arange(N_TOKENS, dtype=np.int64) ** 2 * 7 + 3) % n_vocab


def fingerprint(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """CRC of a model's weights: gold belongs to these, and NumPy may change its random streams one day."""
    crc = 0
    for name in sorted(arrays):
        crc = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), crc)
    return crc
