"""Shapes of models that are quantised by differing rules: few and many layers, shared heads, experts, tied output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.writer import NewTensor

F32 = TYPES_BY_NAME["F32"]


@dataclass(frozen=True)
class Model:
    """A model of 256 columns, or of `width`."""

    name: str
    layers: int = 32
    heads: int = 4
    kv_heads: int = 4
    experts: int = 0
    architecture: str = "llama"
    tied: bool = False
    width: int = 256


CASES = [
    Model("plain"),
    Model("shared", layers=22, heads=8, kv_heads=2),
    Model("tied", layers=9, tied=True),
    Model("experts", layers=12, heads=8, kv_heads=2, experts=8),
    Model("few-experts", layers=16, experts=4),
    Model("grouped-70b", layers=80, heads=8, kv_heads=1),
    Model("falcon", layers=20, architecture="falcon"),
    Model("narrow", layers=6, width=96),
    Model("odd", layers=6, width=40, heads=2, kv_heads=2),
]


def metadata_of(model: Model) -> dict[str, Any]:
    """The keys that llama.cpp needs to quantise such a file."""
    keys: dict[str, Any] = {
        "general.architecture": model.architecture,
        "tokenizer.ggml.model": "no_vocab",
        **{
            f"{model.architecture}.{key}": value
            for key, value in {
                "block_count": model.layers,
                "context_length": 64,
                "embedding_length": model.width,
                "vocab_size": 8,
                "feed_forward_length": model.width,
                "attention.head_count": model.heads,
                "attention.head_count_kv": model.kv_heads,
                "attention.layer_norm_rms_epsilon": 1e-5,
                "attention.layer_norm_epsilon": 1e-5,
                "rope.dimension_count": model.width // model.heads,
            }.items()
        },
    }
    if model.experts:
        keys |= {f"{model.architecture}.expert_count": model.experts, f"{model.architecture}.expert_used_count": 2}
    return keys


def tensors_of(model: Model) -> list[NewTensor]:
    """In an order that is not llama.cpp's own."""
    n = model.width
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (8, n), "output_norm.weight": (n,)}
    if not model.tied:
        shapes["output.weight"] = (8, n)
    for layer in range(model.layers):
        experts = (model.experts,) if model.experts else ()
        kind = "_exps" if experts else ""
        names: dict[str, tuple[int, ...]] = {
            "attn_norm": (n,),
            "attn_output": (8, n),
            "ffn_down" + kind: (*experts, 8, n),
            "ffn_up" + kind: (*experts, 8, n),
        }
        if model.architecture == "falcon":
            names["attn_qkv"] = (8, n)
        else:
            names |= {"attn_q": (8, n), "attn_k": (8, n), "attn_v": (8, n), "ffn_gate" + kind: (*experts, 8, n), "ffn_norm": (n,)}
        if experts:
            names["ffn_gate_inp"] = (model.experts, n)
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in names.items()}
    return [NewTensor(name, shape, F32) for name, shape in shapes.items()]
