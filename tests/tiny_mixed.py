"""Tensors and metadata of tiny models whose layers have heads or feed-forwards of different sizes, as `tiny_models` writes them."""
from __future__ import annotations

from typing import Any

from tiny_draw import Array, Draw, Hybrid, Shape, feed_forward, output_norm


def slides(layer: int) -> bool:
    return layer % 2 == 1


def mimo2_keys(s: Shape) -> dict[str, Any]:
    """Every second layer slides; its keys have twice as many heads. Values are half as long as keys."""
    layers = range(s.n_layers)
    return {"attention.head_count_kv": [s.n_kv_heads * (2 if slides(i) else 1) for i in layers],
            "attention.value_length": s.head_dim // 2, "attention.sliding_window": s.window or 8,
            "attention.sliding_window_pattern": [slides(i) for i in layers], "rope.freq_base_swa": 5000.0,
            "rope.dimension_count": s.head_dim // 2, "attention.value_scale": 0.7}


def mimo2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    n, kv, half = s.n_heads, s.n_kv_heads * (2 if slides(layer) else 1), s.head_dim // 2
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
    found |= {"attn_q.weight": draw.matrix(n * s.head_dim, s.n_embd), "attn_k.weight": draw.matrix(kv * s.head_dim, s.n_embd),
              "attn_v.weight": draw.matrix(kv * half, s.n_embd), "attn_output.weight": draw.matrix(s.n_embd, n * half)}
    if slides(layer):
        found["attn_sinks.weight"] = draw.vector(n, mean=0.0, deviation=1.0)
    return found | feed_forward(draw, s, layer, "mimo2")


MIXED = {
    "mimo2": Hybrid(mimo2_keys, mimo2_block, output_norm),
}
