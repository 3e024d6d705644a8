"""Tensors and metadata of tiny Gemma 3n and Gemma 4 models, as `tiny_models` writes them: every second layer sees everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tiny_draw import Array, Draw, Hybrid, Shape, gated, output_norm

SHARED, WIDTH = 2, 8  # layers without keys of their own, in models of more than 3; columns per layer of a token's row
RANK = 8  # of the path beside attention
NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


def slides(layer: int) -> bool:
    return layer % 2 == 0


def n_shared(s: Shape) -> int:
    return SHARED if s.n_layers > 3 else 0


def attention(draw: Draw, s: Shape, dim: int, *, keys: bool) -> dict[str, Array]:
    found = {
        "attn_q.weight": draw.matrix(s.n_heads * dim, s.n_embd),
        "attn_output.weight": draw.matrix(s.n_embd, s.n_heads * dim),
        "attn_q_norm.weight": draw.vector(dim),
    }
    if keys:
        found |= {f"attn_{part}.weight": draw.matrix(s.n_kv_heads * dim, s.n_embd) for part in "kv"}
        found["attn_k_norm.weight"] = draw.vector(dim)
    return found


def per_layer(draw: Draw, s: Shape) -> dict[str, Array]:
    return {
        "inp_gate.weight": draw.matrix(WIDTH, s.n_embd),
        "proj.weight": draw.matrix(s.n_embd, WIDTH),
        "post_norm.weight": draw.vector(s.n_embd),
    }


def per_layer_ends(draw: Draw, s: Shape) -> dict[str, Array]:
    n = WIDTH * s.n_layers
    return {
        "per_layer_token_embd.weight": draw.matrix(s.n_vocab, n),
        "per_layer_model_proj.weight": draw.matrix(n, s.n_embd),
        "per_layer_proj_norm.weight": draw.vector(WIDTH),
    }


def experts(draw: Draw, s: Shape) -> dict[str, Array]:
    n, width = s.n_experts, s.n_ff // 2
    return {
        "ffn_gate_inp.weight": draw.matrix(n, s.n_embd),
        "ffn_gate_inp.scale": draw.vector(s.n_embd),
        "ffn_gate_up_exps.weight": np.stack([draw.matrix(2 * width, s.n_embd) for _ in range(n)]),
        "ffn_down_exps.weight": np.stack([draw.matrix(s.n_embd, width) for _ in range(n)]),
        "ffn_down_exps.scale": draw.vector(n),
        **{f"{name}.weight": draw.vector(s.n_embd) for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")},
    }


def gemma4_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """Layers that see everything have heads twice as long; those that share keys have a feed-forward twice as wide."""
    shares = layer >= s.n_layers - n_shared(s)
    dim = s.head_dim * (1 if slides(layer) else 2)
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in NORMS} | attention(draw, s, dim, keys=not shares)
    found |= gated(draw, replace(s, n_ff=2 * s.n_ff) if shares else s) | per_layer(draw, s)
    found["layer_output_scale.weight"] = draw.vector(1)
    return found | (experts(draw, s) if s.n_experts else {})


def gemma3n_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """Four rows per token."""
    norms = (*NORMS, "altup_router_norm", "laurel_post_norm", "altup_correct_scale")
    shares = layer >= s.n_layers - n_shared(s)
    return (
        {f"{name}.weight": draw.vector(s.n_embd) for name in norms}
        | attention(draw, s, s.head_dim, keys=not shares)
        | gated(draw, s)
        | per_layer(draw, s)
        | {
            "altup_correct_coef.weight": draw.matrix(4, 4),
            "altup_predict_coef.weight": draw.matrix(16, 4),
            "altup_router.weight": 20 * draw.matrix(4, s.n_embd),
            "laurel_l.weight": draw.matrix(RANK, s.n_embd),
            "laurel_r.weight": draw.matrix(s.n_embd, RANK),
        }
    )


def gemma3n_keys(s: Shape) -> dict[str, Any]:
    """Every third layer is dense."""
    return {
        "attention.sliding_window": s.window or 8,
        "attention.shared_kv_layers": n_shared(s),
        "attention.sliding_window_pattern": [slides(layer) for layer in range(s.n_layers)],
        "rope.freq_base_swa": 10000.0,
        "embedding_length_per_layer_input": WIDTH,
        "final_logit_softcapping": 3.0,
        "altup.num_inputs": 4,
        "altup.active_idx": 0,
        "activation_sparsity_scale": [-np.inf if layer % 3 == 2 else 0.8416212 for layer in range(s.n_layers)],
    }


def gemma3n_ends(draw: Draw, s: Shape) -> dict[str, Array]:
    projections = {
        f"altup_{name}.weight": np.stack([draw.matrix(s.n_embd, s.n_embd) for _ in range(3)]) for name in ("proj", "unembd_proj")
    }
    return per_layer_ends(draw, s) | output_norm(draw, s) | projections


def gemma4_keys(s: Shape) -> dict[str, Any]:
    """Of the sizes of tiny_models.Shape the length of heads is that of sliding layers."""
    shared = n_shared(s)
    keys: dict[str, Any] = {
        "attention.key_length": 2 * s.head_dim,
        "attention.value_length": 2 * s.head_dim,
        "attention.key_length_swa": s.head_dim,
        "attention.value_length_swa": s.head_dim,
        "rope.dimension_count": 2 * s.head_dim,
        "rope.dimension_count_swa": s.head_dim,
        "rope.freq_base_swa": 10000.0,
        "attention.sliding_window": s.window or 8,
        "attention.shared_kv_layers": shared,
        "attention.sliding_window_pattern": [slides(layer) for layer in range(s.n_layers)],
        "embedding_length_per_layer_input": WIDTH,
        "final_logit_softcapping": 3.0,
        "feed_forward_length": [s.n_ff] * (s.n_layers - shared) + [2 * s.n_ff] * shared,
    }
    return keys | ({"expert_feed_forward_length": s.n_ff // 2} if s.n_experts else {})


def gemma4_ends(draw: Draw, s: Shape) -> dict[str, Array]:
    """A quarter of the pairs of long heads is rotated."""
    found = per_layer_ends(draw, s) | output_norm(draw, s)
    if s.n_layers > 1:
        found["rope_freqs.weight"] = np.where(np.arange(s.head_dim) < s.head_dim // 4, 1.0, 1e30).astype(np.float32)
    return found


GEMMAS = {"gemma3n": Hybrid(gemma3n_keys, gemma3n_block, gemma3n_ends), "gemma4": Hybrid(gemma4_keys, gemma4_block, gemma4_ends)}
