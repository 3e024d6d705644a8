"""Tiny models with Mamba and Mamba 2 layers: see tiny_hybrids."""

from __future__ import annotations

from typing import Any

import numpy as np
from tiny_draw import Array, Draw, Hybrid, Shape, attention, feed_forward, gated, output_norm

INNER, HEADS, STATE, GROUPS = 128, 8, 16, 2  # of Mamba 2


def mamba_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    inner = 2 * s.n_embd
    return {
        "attn_norm.weight": draw.vector(s.n_embd),
        "ssm_in.weight": draw.matrix(2 * inner, s.n_embd),
        "ssm_conv1d.weight": draw.vector(inner, 4, mean=0.2),
        "ssm_conv1d.bias": draw.vector(inner, mean=0.0),
        "ssm_x.weight": draw.matrix(32 + 2 * 16, inner),
        "ssm_dt.weight": draw.matrix(inner, 32),
        "ssm_dt.bias": draw.vector(inner, mean=-1.0),
        "ssm_a": -np.abs(draw.vector(inner, 16)),
        "ssm_d": draw.vector(inner),
        "ssm_out.weight": draw.matrix(s.n_embd, inner),
    }


def mamba2(draw: Draw, s: Shape, groups: int = GROUPS) -> dict[str, Array]:
    mixed = INNER + 2 * groups * STATE
    return {
        "ssm_in.weight": draw.matrix(INNER + mixed + HEADS, s.n_embd),
        "ssm_conv1d.weight": draw.vector(mixed, 4, mean=0.2),
        "ssm_conv1d.bias": draw.vector(mixed, mean=0.0),
        "ssm_dt.bias": draw.vector(HEADS, mean=-1.0),
        "ssm_a": -np.abs(draw.vector(HEADS, 1)),
        "ssm_d": draw.vector(HEADS, 1),
        "ssm_norm.weight": draw.vector(groups, INNER // groups),
        "ssm_out.weight": draw.matrix(s.n_embd, INNER),
    }


def mamba2_keys(s: Shape, groups: int = GROUPS) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": INNER,
        "ssm.state_size": STATE,
        "ssm.time_step_rank": HEADS,
        "ssm.group_count": groups,
    }


def mamba2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    return {"attn_norm.weight": draw.vector(s.n_embd)} | mamba2(draw, s)


def no_norms(tensors: dict[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in tensors.items() if "_norm" not in name}


def granite_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """One group of B and C, as transformers normalises the whole row."""
    mixer = mamba2(draw, s, 1) if layer % 2 else no_norms(attention(draw, s))
    return (
        {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
        | mixer
        | feed_forward(draw, s, layer, "granitehybrid")
    )


def granite_keys(s: Shape) -> dict[str, Any]:
    return (
        mamba2_keys(s, 1)
        | every_second_attends(s)
        | {
            "rope.scaling.finetuned": False,
            "embedding_scale": 3.0,
            "residual_scale": 0.5,
            "attention.scale": 0.2,
            "logit_scale": 4.0,
        }
    )


def every_second_attends(s: Shape) -> dict[str, Any]:
    return {"attention.head_count_kv": [0 if i % 2 else s.n_kv_heads for i in range(s.n_layers)]}


def falcon_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    mixer = {name: array for name, array in mamba2(draw, s).items() if name != "ssm_norm.weight"}
    norms = {name: draw.vector(s.n_embd) for name in ("attn_norm.weight", "ffn_norm")}  # the second one as in real files
    return norms | no_norms(attention(draw, s)) | mixer | gated(draw, s)


def nemotron_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """Attention, Mamba 2 and a feed-forward by turns."""
    norm = {"attn_norm.weight": draw.vector(s.n_embd)}
    if layer % 3 == 0:
        return norm | no_norms(attention(draw, s))
    if layer % 3 == 1:
        return norm | mamba2(draw, s)
    return norm | {
        name: array
        for name, array in feed_forward(draw, s, layer, "nemotron_h_moe").items()
        if name.startswith("ffn_gate_inp") or "gate" not in name
    }


def nemotron_keys(s: Shape) -> dict[str, Any]:
    turns = [i % 3 for i in range(s.n_layers)]
    return mamba2_keys(s) | {
        "attention.layer_norm_epsilon": s.eps,
        "attention.head_count_kv": [s.n_kv_heads if turn == 0 else 0 for turn in turns],
        "feed_forward_length": [s.n_ff if turn == 2 else 0 for turn in turns],
    }


def jamba_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """Experts in the layers that have Mamba, where there are any."""
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
    if layer % 2 == 0:
        return found | no_norms(attention(draw, s)) | gated(draw, s)
    norms = {f"ssm_{name}_norm.weight": draw.vector(n) for name, n in (("dt", 32), ("b", 16), ("c", 16))}
    return mamba_block(draw, s, layer) | norms | found | feed_forward(draw, s, layer, "jamba")


def plamo2_keys(s: Shape) -> dict[str, Any]:
    heads = {
        f"attention.head_count{kind}": [0 if i % 2 else n for i in range(s.n_layers)]
        for kind, n in (("", s.n_heads), ("_kv", s.n_kv_heads))
    }
    return mamba2_keys(s, 0) | heads


def plamo2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """The names of some norms have no .weight, as in real files."""
    n_kv, steps = s.n_kv_heads * s.head_dim, 64
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")} | {
        f"post_{name}_norm": draw.vector(s.n_embd) for name in ("attention", "ffw")
    }
    found |= {"ffn_up.weight": draw.matrix(2 * s.n_ff, s.n_embd), "ffn_down.weight": draw.matrix(s.n_embd, s.n_ff)}
    if layer % 2 == 0:
        n_q = s.n_heads * s.head_dim
        return found | {
            "attn_qkv.weight": draw.matrix(n_q + 2 * n_kv, s.n_embd),
            "attn_output.weight": draw.matrix(s.n_embd, n_q),
            "attn_q_norm.weight": draw.vector(s.n_heads, s.head_dim),
            "attn_k_norm.weight": draw.vector(s.n_kv_heads, s.head_dim),
        }
    norms = {f"ssm_{name}_norm": draw.vector(n) for name, n in (("dt", steps), ("b", STATE), ("c", STATE))}
    return (
        found
        | norms
        | {
            "ssm_in.weight": draw.matrix(2 * INNER, s.n_embd),
            "ssm_conv1d.weight": draw.vector(INNER, 4, mean=0.2),
            "ssm_x.weight": draw.matrix(2 * STATE + steps, INNER),
            "ssm_dt.weight": draw.matrix(HEADS, steps),
            "ssm_dt.bias": draw.vector(HEADS, mean=-1.0),
            "ssm_a": -np.abs(draw.vector(HEADS)),
            "ssm_d": draw.vector(HEADS),
            "ssm_out.weight": draw.matrix(s.n_embd, INNER),
        }
    )


def mamba_keys(s: Shape) -> dict[str, Any]:
    return {"ssm.conv_kernel": 4, "ssm.inner_size": 2 * s.n_embd, "ssm.state_size": 16, "ssm.time_step_rank": 32}


SSM = {
    "plamo2": Hybrid(plamo2_keys, plamo2_block, output_norm),
    "mamba": Hybrid(mamba_keys, mamba_block, output_norm),
    "mamba2": Hybrid(mamba2_keys, mamba2_block, output_norm),
    "granitehybrid": Hybrid(granite_keys, granite_block, output_norm),
    "falcon-h1": Hybrid(mamba2_keys, falcon_block, output_norm),
    "nemotron_h": Hybrid(nemotron_keys, nemotron_block, output_norm),
    "nemotron_h_moe": Hybrid(nemotron_keys, nemotron_block, output_norm),
    "jamba": Hybrid(lambda s: mamba_keys(s) | every_second_attends(s), jamba_block, output_norm),
}
