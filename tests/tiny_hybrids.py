"""Tensors and metadata of tiny models with recurrent layers, as `tiny_models` writes them: the first layer has attention."""
from __future__ import annotations

from typing import Any

import numpy as np
from tiny_draw import Array, Draw, Hybrid, Shape, attention, feed_forward, gated, output_norm
from tiny_ssm import SSM


def lfm2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    norms = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
    if layer % 2:
        mixer = {"shortconv.in_proj.weight": draw.matrix(3 * s.n_embd, s.n_embd), "shortconv.conv.weight": draw.vector(s.n_embd, 3),
                 "shortconv.out_proj.weight": draw.matrix(s.n_embd, s.n_embd)}
    else:
        mixer = attention(draw, s)
    return norms | mixer | feed_forward(draw, s, layer, "lfm2moe")


def experts(draw: Draw, s: Shape) -> dict[str, Array]:
    """Four experts, half as wide as a feed-forward, and a shared one."""
    n, width = 4, s.n_ff // 2
    return {"ffn_gate_inp.weight": draw.matrix(n, s.n_embd), "ffn_gate_inp_shexp.weight": draw.vector(s.n_embd, mean=0.0),
            **{f"ffn_{part}_exps.weight": np.stack([draw.matrix(width, s.n_embd) for _ in range(n)]) for part in ("gate", "up")},
            "ffn_down_exps.weight": np.stack([draw.matrix(s.n_embd, width) for _ in range(n)]),
            "ffn_gate_shexp.weight": draw.matrix(width, s.n_embd), "ffn_up_shexp.weight": draw.matrix(width, s.n_embd),
            "ffn_down_shexp.weight": draw.matrix(s.n_embd, width)}


def qwen3next_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    found = qwen35moe_block(draw, s, layer)
    if layer % 2:
        del found["ssm_alpha.weight"], found["ssm_beta.weight"]
        found["ssm_ba.weight"] = draw.matrix(8, s.n_embd)
    return found


def qwen35moe_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    dense = qwen35_block(draw, s, layer)
    return {name: array for name, array in dense.items() if not name.startswith("ffn_")} | experts(draw, s)


def qwen35_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """Two heads of keys and four of values, 32 wide."""
    found = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "post_attention_norm")} | gated(draw, s)
    if layer % 2 == 0:
        return found | attention(draw, s, gates=2)
    return found | {
        "attn_qkv.weight": draw.matrix(2 * 2 * 32 + 128, s.n_embd), "attn_gate.weight": draw.matrix(128, s.n_embd),
        "ssm_conv1d.weight": draw.vector(2 * 2 * 32 + 128, 4, mean=0.3), "ssm_alpha.weight": draw.matrix(4, s.n_embd),
        "ssm_beta.weight": draw.matrix(4, s.n_embd), "ssm_a": -np.abs(draw.vector(4)), "ssm_dt.bias": draw.vector(4, mean=-1.0),
        "ssm_norm.weight": draw.vector(32), "ssm_out.weight": draw.matrix(s.n_embd, 128)}


def delta_keys(s: Shape) -> dict[str, Any]:
    return {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 32, "ssm.time_step_rank": 4, "ssm.group_count": 2,
            "attention.recurrent_layers": [bool(i % 2) for i in range(s.n_layers)]}


def delta_expert_keys(s: Shape) -> dict[str, Any]:
    return delta_keys(s) | {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": s.n_ff // 2,
                            "expert_shared_feed_forward_length": s.n_ff // 2}


def lfm2_keys(s: Shape) -> dict[str, Any]:
    return {"shortconv.l_cache": 3, "attention.head_count_kv": [0 if i % 2 else s.n_kv_heads for i in range(s.n_layers)]}


def token_norm(draw: Draw, s: Shape) -> dict[str, Array]:
    return {"token_embd_norm.weight": draw.vector(s.n_embd)}


HYBRIDS = {
    **SSM,
    "qwen35": Hybrid(delta_keys, qwen35_block, output_norm),
    "qwen35moe": Hybrid(delta_expert_keys, qwen35moe_block, output_norm),
    "qwen3next": Hybrid(delta_expert_keys, qwen3next_block, output_norm),
    "lfm2": Hybrid(lfm2_keys, lfm2_block, token_norm),
    "lfm2moe": Hybrid(lfm2_keys, lfm2_block, token_norm),
}
