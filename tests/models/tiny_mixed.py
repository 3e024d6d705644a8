"""Tensors and metadata of tiny models whose layers have heads or feed-forwards of different sizes, as `tiny_models` writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tiny_draw import Array, Draw, Hybrid, Shape, attention, feed_forward, gated, output_norm


def slides(layer: int) -> bool:
    return layer % 2 == 1


def mimo2_keys(s: Shape) -> dict[str, Any]:
    """Every second layer slides; its keys have twice as many heads. Values are half as long as keys."""
    layers = range(s.n_layers)
    return {
        "attention.head_count_kv": [s.n_kv_heads * (2 if slides(i) else 1) for i in layers],
        "attention.value_length": s.head_dim // 2,
        "attention.sliding_window": s.window or 8,
        "attention.sliding_window_pattern": [slides(i) for i in layers],
        "rope.freq_base_swa": 5000.0,
        "rope.dimension_count": s.head_dim // 2,
        "attention.value_scale": 0.7,
    }


def mimo2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    n, kv, half = s.n_heads, s.n_kv_heads * (2 if slides(layer) else 1), s.head_dim // 2
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
    found |= {
        "attn_q.weight": draw.matrix(n * s.head_dim, s.n_embd),
        "attn_k.weight": draw.matrix(kv * s.head_dim, s.n_embd),
        "attn_v.weight": draw.matrix(kv * half, s.n_embd),
        "attn_output.weight": draw.matrix(s.n_embd, n * half),
    }
    if slides(layer):
        found["attn_sinks.weight"] = draw.vector(n, mean=0.0, deviation=1.0)
    return found | feed_forward(draw, s, layer, "mimo2")


def step35_keys(s: Shape) -> dict[str, Any]:
    """Every second layer slides, with twice as many heads; the last one has limits."""
    keys, layers = laguna_keys(s), range(s.n_layers)
    del keys["rope.dimension_count"], keys["rope.dimension_count_swa"]
    return keys | {
        "attention.head_count_kv": [s.n_kv_heads for _ in layers],
        "swiglu_clamp_exp": [0.4 if i == s.n_layers - 1 else 0.0 for i in layers],
        "swiglu_clamp_shexp": [0.6 if i == s.n_layers - 1 else 0.0 for i in layers],
    }


def laguna_keys(s: Shape) -> dict[str, Any]:
    """Every second layer slides, with twice as many heads; the others rotate a half of theirs."""
    layers = range(s.n_layers)
    return {
        "attention.head_count": [s.n_heads * (2 if slides(i) else 1) for i in layers],
        "attention.sliding_window": s.window or 8,
        "attention.sliding_window_pattern": [slides(i) for i in layers],
        "rope.freq_base_swa": 5000.0,
        "rope.dimension_count": s.head_dim // 2,
        "rope.dimension_count_swa": s.head_dim,
    }


def gated_block(arch: str) -> Callable[[Draw, Shape, int], dict[str, Array]]:
    """Attention with a gate for each head."""

    def block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
        wide = replace(s, n_heads=s.n_heads * (2 if slides(layer) else 1))
        found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
        found |= attention(draw, wide) | {"attn_gate.weight": draw.matrix(wide.n_heads, s.n_embd)}
        return found | feed_forward(draw, s, layer, arch)

    return block


def deci_heads(s: Shape) -> list[tuple[int, int, int]]:
    """Heads, key heads and width of each layer: attention, a matrix, no attention, nothing."""
    kinds = ((s.n_heads, s.n_kv_heads, s.n_ff), (s.n_heads, 0, s.n_ff // 2), (0, 0, s.n_ff), (0, 0, 0))
    return [kinds[layer % 4] for layer in range(s.n_layers)]


def deci_keys(s: Shape) -> dict[str, Any]:
    heads, kv_heads, widths = (list(each) for each in zip(*deci_heads(s), strict=True))
    return {"attention.head_count": heads, "attention.head_count_kv": kv_heads, "feed_forward_length": widths}


def deci_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    heads, kv_heads, width = deci_heads(s)[layer]
    found: dict[str, Array] = {}
    if heads:
        found["attn_norm.weight"] = draw.vector(s.n_embd)
    if kv_heads:
        found |= {name: array for name, array in attention(draw, s).items() if not name.endswith("_norm.weight")}
    elif heads:
        found["attn_output.weight"] = draw.matrix(s.n_embd, s.n_embd)
    return found | ({"ffn_norm.weight": draw.vector(s.n_embd)} | gated(draw, s, width) if width else {})


def openelm_sizes(s: Shape, layer: int) -> Shape:
    """Every second layer has half of the heads, and is half as wide."""
    share = 2 if slides(layer) else 1
    return replace(s, n_heads=s.n_heads // share, n_kv_heads=s.n_kv_heads // share, n_ff=s.n_ff // share)


def openelm_keys(s: Shape) -> dict[str, Any]:
    sizes = [openelm_sizes(s, layer) for layer in range(s.n_layers)]
    return {
        "attention.head_count": [each.n_heads for each in sizes],
        "feed_forward_length": [each.n_ff for each in sizes],
        "attention.head_count_kv": [each.n_kv_heads for each in sizes],
    }


def openelm_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    s = openelm_sizes(s, layer)
    n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
    return {
        "attn_norm.weight": draw.vector(s.n_embd),
        "ffn_norm.weight": draw.vector(s.n_embd),
        "attn_qkv.weight": draw.matrix(n_q + 2 * n_kv, s.n_embd),
        "attn_output.weight": draw.matrix(s.n_embd, n_q),
        "attn_q_norm.weight": draw.vector(s.head_dim),
        "attn_k_norm.weight": draw.vector(s.head_dim),
    } | gated(draw, s)


def granite_swa_keys(s: Shape) -> dict[str, Any]:
    """The first of four layers sees everything, the second of three does not rotate."""
    layers = range(s.n_layers)
    keys = {
        "attention.sliding_window": s.window or 8,
        "attention.sliding_window_pattern": [i % 4 > 0 for i in layers],
        "attention.rope_pattern": [i % 3 != 1 for i in layers],
        "embedding_scale": 3.0,
        "residual_scale": 0.5,
        "attention.scale": 0.2,
        "logit_scale": 4.0,
    }
    return keys | ({"expert_shared_feed_forward_length": s.n_ff} if s.n_experts else {})


def granite_swa_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
    found |= {name: array for name, array in attention(draw, s).items() if not name.endswith("_norm.weight")}
    found["attn_sinks.weight"] = draw.vector(s.n_heads, mean=0.0, deviation=1.0)
    if not s.n_experts:
        return found | gated(draw, s)
    experts = draw.experts(s, "granite_swa")
    both = [experts.pop(f"ffn_{part}_exps.weight") for part in ("gate", "up")]
    return (
        found
        | experts
        | {
            "ffn_gate_up_exps.weight": np.concatenate(both, axis=1),
            "ffn_up_shexp.weight": draw.matrix(2 * s.n_ff, s.n_embd),
            "ffn_down_shexp.weight": draw.matrix(s.n_embd, s.n_ff),
        }
    )


def arctic_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """A dense feed-forward as wide as a row beside the experts."""
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm", "ffn_norm_exps")}
    found |= {name: array for name, array in attention(draw, s).items() if not name.endswith("_norm.weight")}
    return found | gated(draw, s, s.n_embd) | draw.experts(s, "arctic")


def grovemoe_keys(s: Shape) -> dict[str, Any]:
    return {"experts_per_group": 2, "expert_group_scale": 0.4, "expert_chunk_feed_forward_length": 32}


def grovemoe_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """A small expert for each two."""
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")} | attention(draw, s)
    small = {
        f"ffn_{part}_chexps.weight": np.stack([draw.matrix(*size) for _ in range(s.n_experts // 2)])
        for part, size in (("gate", (32, s.n_embd)), ("up", (32, s.n_embd)), ("down", (s.n_embd, 32)))
    }
    return found | draw.experts(s, "grovemoe") | small


def talkie_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    found = {name: array for name, array in attention(draw, s).items() if not name.endswith("_norm.weight")} | gated(draw, s)
    scales = {name: draw.vector(1, mean=0.5) for name in ("attn_output.scale", "ffn_down.scale", "layer_output_scale.weight")}
    return found | scales | {"attn_q_norm.weight": draw.vector(s.n_heads, 1)}


MIXED = {
    "talkie": Hybrid(lambda s: {"logit_scale": 0.7}, talkie_block, lambda draw, s: {}),
    "arctic": Hybrid(lambda s: {}, arctic_block, output_norm),
    "grovemoe": Hybrid(grovemoe_keys, grovemoe_block, output_norm),
    "granite_swa": Hybrid(granite_swa_keys, granite_swa_block, output_norm),
    "deci": Hybrid(deci_keys, deci_block, output_norm),
    "openelm": Hybrid(openelm_keys, openelm_block, output_norm),
    "step35": Hybrid(step35_keys, gated_block("step35"), output_norm),
    "laguna": Hybrid(laguna_keys, gated_block("laguna"), output_norm),
    "mimo2": Hybrid(mimo2_keys, mimo2_block, output_norm),
}
