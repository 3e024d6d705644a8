"""Tensors and keys of tiny models with latent attention (deepseek2), in both layouts that llama.cpp's converter has had."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tiny_draw import Draw, gated

Array = npt.NDArray[Any]
LATENT, PLAIN, TURNED, VALUE = 32, 32, 16, 24  # of the short row, of a head's dims, of its value
Q_LATENT = 40


def metadata(s: Any) -> dict[str, Any]:  # Any: tiny_models.Shape, which imports this file
    """Layer 0 has no experts, the others have four, of which two are taken, and a shared one."""
    keys = {
        "attention.kv_lora_rank": LATENT,
        "rope.dimension_count": TURNED,
        "leading_dense_block_count": 1,
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_feed_forward_length": s.n_ff // 2,
        "expert_shared_count": 1,
        "attention.head_count_kv": 1,
        "attention.key_length": LATENT + TURNED,
        "attention.value_length": LATENT,
        "attention.key_length_mla": PLAIN + TURNED,
        "attention.value_length_mla": VALUE,
    }
    return keys


def block(draw: Draw, s: Any, layer: int) -> dict[str, Array]:
    """A block of DeepSeek-V2-Lite."""
    n = s.n_heads
    found = {
        "attn_norm.weight": draw.vector(s.n_embd),
        "ffn_norm.weight": draw.vector(s.n_embd),
        "attn_q.weight": draw.matrix(n * (PLAIN + TURNED), s.n_embd),
        "attn_kv_a_mqa.weight": draw.matrix(LATENT + TURNED, s.n_embd),
        "attn_kv_a_norm.weight": draw.vector(LATENT),
        "attn_k_b.weight": np.stack([draw.matrix(LATENT, PLAIN) for _ in range(n)]),
        "attn_v_b.weight": np.stack([draw.matrix(VALUE, LATENT) for _ in range(n)]),
        "attn_output.weight": draw.matrix(s.n_embd, n * VALUE),
    }
    return found | (experts(draw, s) if layer else gated(draw, s))


def minicpm3_keys(s: Any) -> dict[str, Any]:
    """No key for the length of values: all heads' together are as long as a row."""
    return {
        "attention.kv_lora_rank": LATENT,
        "attention.q_lora_rank": Q_LATENT,
        "rope.dimension_count": TURNED,
        "attention.head_count_kv": s.n_heads,
        "attention.key_length": PLAIN + TURNED,
        "attention.value_length": None,
    }


def minicpm3_block(draw: Draw, s: Any, layer: int) -> dict[str, Array]:
    n, value = s.n_heads, s.n_embd // s.n_heads
    return {
        "attn_norm.weight": draw.vector(s.n_embd),
        "ffn_norm.weight": draw.vector(s.n_embd),
        "attn_q_a.weight": draw.matrix(Q_LATENT, s.n_embd),
        "attn_q_a_norm.weight": draw.vector(Q_LATENT),
        "attn_q_b.weight": draw.matrix(n * (PLAIN + TURNED), Q_LATENT),
        "attn_kv_a_mqa.weight": draw.matrix(LATENT + TURNED, s.n_embd),
        "attn_kv_a_norm.weight": draw.vector(LATENT),
        "attn_kv_b.weight": draw.matrix(n * (PLAIN + value), LATENT),
        "attn_output.weight": draw.matrix(s.n_embd, n * value),
    } | gated(draw, s)


def plm_keys(s: Any) -> dict[str, Any]:
    return {
        "attention.kv_lora_rank": LATENT,
        "rope.dimension_count": TURNED,
        "attention.head_count_kv": s.n_heads,
        "attention.key_length": PLAIN + TURNED,
        "attention.value_length": VALUE,
    }


def plm_block(draw: Draw, s: Any, layer: int) -> dict[str, Array]:
    n = s.n_heads
    return {
        "attn_norm.weight": draw.vector(s.n_embd),
        "ffn_norm.weight": draw.vector(s.n_embd),
        "attn_q.weight": draw.matrix(n * (PLAIN + TURNED), s.n_embd),
        "attn_kv_a_mqa.weight": draw.matrix(LATENT + TURNED, s.n_embd),
        "attn_kv_a_norm.weight": draw.vector(LATENT),
        "attn_kv_b.weight": draw.matrix(n * (PLAIN + VALUE), LATENT),
        "attn_output.weight": draw.matrix(s.n_embd, n * VALUE),
        "ffn_up.weight": draw.matrix(s.n_ff, s.n_embd),
        "ffn_down.weight": draw.matrix(s.n_embd, s.n_ff),
    }


KDA = 16  # of a head's dims in layers that keep a state


def kimi_keys(s: Any) -> dict[str, Any]:
    """Every second layer attends, the others keep a state."""
    return metadata(s) | {
        "attention.head_count_kv": [layer % 2 for layer in range(s.n_layers)],
        "kda.head_dim": KDA,
        "ssm.conv_kernel": 4,
        "expert_gating_func": 2,
        "expert_weights_scale": 2.5,
        "attention.value_length": None,
    }


def kimi_block(draw: Draw, s: Any, layer: int) -> dict[str, Array]:
    """Convolutions have four dimensions in files, as the rates of heads have."""
    biased = {"exp_probs_b.bias": draw.vector(4, mean=0.0)} if layer else {}
    found, n, inner = block(draw, s, layer) | biased, s.n_heads, s.n_heads * KDA
    if layer % 2:
        return found
    found = {name: array for name, array in found.items() if not name.startswith("attn_") or name == "attn_norm.weight"}
    for part in "qkv":
        found |= {
            f"attn_{part}.weight": draw.matrix(inner, s.n_embd),
            f"ssm_conv1d_{part}.weight": draw.matrix(inner, 4).reshape(1, inner, 1, 4),
        }
    for part in "fg":
        found |= {f"ssm_{part}_a.weight": draw.matrix(KDA, s.n_embd), f"ssm_{part}_b.weight": draw.matrix(inner, KDA)}
    return found | {
        "ssm_beta.weight": draw.matrix(n, s.n_embd),
        "ssm_a": -draw.vector(1, 1, n, 1),
        "ssm_norm.weight": draw.vector(KDA),
        "ssm_dt.bias": draw.vector(inner, mean=-1.0),
        "attn_output.weight": draw.matrix(s.n_embd, inner),
    }


def experts(draw: Draw, s: Any) -> dict[str, Array]:
    """Four experts, half as wide as a feed-forward, and a shared one."""
    n, width = 4, s.n_ff // 2
    shared = {name.replace(".", "_shexp."): array for name, array in gated(draw, s, width).items()}
    return shared | {
        "ffn_gate_inp.weight": draw.matrix(n, s.n_embd),
        "ffn_down_exps.weight": np.stack([draw.matrix(s.n_embd, width)] * n),
        **{f"ffn_{part}_exps.weight": np.stack([draw.matrix(width, s.n_embd) for _ in range(n)]) for part in ("gate", "up")},
    }
