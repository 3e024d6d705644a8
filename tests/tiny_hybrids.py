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


def rwkv7_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """Heads of 16 dims, short rows of 8, 12, 16 and 24."""
    n, small = s.n_embd, ("k_k", "k_a", "r_k", "w0", "a0", *(["v0"] if layer else []))
    ranks = {"w": 8, "a": 12, "g": 24} | ({"v": 16} if layer else {})
    norms = {f"{name}.{kind}": draw.vector(n, mean=mean) for name in ("attn_norm", "attn_norm_2", "time_mix_ln")
             for kind, mean in (("weight", 1.0), ("bias", 0.0))}
    return norms | {f"time_mix_{name}.weight": draw.vector(n, mean=0.5) for name in small} | {
        f"time_mix_{name}.weight": draw.matrix(n, n) for name in ("receptance", "key", "value", "output")} | {
        f"time_mix_{name}1.weight": draw.matrix(rank, n) for name, rank in ranks.items()} | {
        f"time_mix_{name}2.weight": draw.matrix(n, rank) for name, rank in ranks.items()} | {
        "time_mix_lerp_fused.weight": draw.vector(6, 1, 1, n, mean=0.5), "channel_mix_lerp_k.weight": draw.vector(n, mean=0.5),
        "channel_mix_key.weight": draw.matrix(s.n_ff, n), "channel_mix_value.weight": 0.5 * draw.matrix(n, s.n_ff)}


def rwkv7_keys(s: Shape) -> dict[str, Any]:
    return {"attention.head_count": 0, "attention.head_count_kv": None, "attention.layer_norm_rms_epsilon": None,
            "attention.layer_norm_epsilon": s.eps, "wkv.head_size": 16, "attention.decay_lora_rank": 8,
            "attention.iclr_lora_rank": 12, "attention.value_residual_mix_lora_rank": 16, "attention.gate_lora_rank": 24}


def rwkv7_ends(draw: Draw, s: Shape) -> dict[str, Array]:
    return {f"{name}.{kind}": draw.vector(s.n_embd, mean=mean) for name in ("token_embd_norm", "output_norm")
            for kind, mean in (("weight", 1.0), ("bias", 0.0))}


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
    "rwkv7": Hybrid(rwkv7_keys, rwkv7_block, rwkv7_ends),
    "qwen35": Hybrid(delta_keys, qwen35_block, output_norm),
    "qwen35moe": Hybrid(delta_expert_keys, qwen35moe_block, output_norm),
    "qwen3next": Hybrid(delta_expert_keys, qwen3next_block, output_norm),
    "lfm2": Hybrid(lfm2_keys, lfm2_block, token_norm),
    "lfm2moe": Hybrid(lfm2_keys, lfm2_block, token_norm),
}
