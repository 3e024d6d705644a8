"""Tensors and metadata of tiny models with recurrent layers, as `tiny_models` writes them: the first layer has attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from tiny_draw import Array, Draw, Hybrid, Shape, attention, feed_forward, gated, output_norm
from tiny_ssm import SSM


def lfm2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    norms = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
    if layer % 2:
        mixer = {
            "shortconv.in_proj.weight": draw.matrix(3 * s.n_embd, s.n_embd),
            "shortconv.conv.weight": draw.vector(s.n_embd, 3),
            "shortconv.out_proj.weight": draw.matrix(s.n_embd, s.n_embd),
        }
    else:
        mixer = attention(draw, s)
    return norms | mixer | feed_forward(draw, s, layer, "lfm2moe")


def experts(draw: Draw, s: Shape) -> dict[str, Array]:
    """Four experts, half as wide as a feed-forward, and a shared one."""
    n, width = 4, s.n_ff // 2
    return {
        "ffn_gate_inp.weight": draw.matrix(n, s.n_embd),
        "ffn_gate_inp_shexp.weight": draw.vector(1, s.n_embd, mean=0.0),
        **{f"ffn_{part}_exps.weight": np.stack([draw.matrix(width, s.n_embd) for _ in range(n)]) for part in ("gate", "up")},
        "ffn_down_exps.weight": np.stack([draw.matrix(s.n_embd, width) for _ in range(n)]),
        "ffn_gate_shexp.weight": draw.matrix(width, s.n_embd),
        "ffn_up_shexp.weight": draw.matrix(width, s.n_embd),
        "ffn_down_shexp.weight": draw.matrix(s.n_embd, width),
    }


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
        "attn_qkv.weight": draw.matrix(2 * 2 * 32 + 128, s.n_embd),
        "attn_gate.weight": draw.matrix(128, s.n_embd),
        "ssm_conv1d.weight": draw.vector(2 * 2 * 32 + 128, 4, mean=0.3),
        "ssm_alpha.weight": draw.matrix(4, s.n_embd),
        "ssm_beta.weight": draw.matrix(4, s.n_embd),
        "ssm_a": -np.abs(draw.vector(4)),
        "ssm_dt.bias": draw.vector(4, mean=-1.0),
        "ssm_norm.weight": draw.vector(32),
        "ssm_out.weight": draw.matrix(s.n_embd, 128),
    }


def rwkv6_mix(draw: Draw, s: Shape, kv_heads: int) -> dict[str, Array]:
    """Heads of 16 dims, short rows of 8 and 12."""
    n, sizes = s.n_embd, {"receptance": s.n_embd, "gate": s.n_embd, "key": 16 * kv_heads, "value": 16 * kv_heads}
    return {f"time_mix_{name}.weight": draw.matrix(rows, n) for name, rows in sizes.items()} | {
        "time_mix_output.weight": draw.matrix(n, n),
        "time_mix_lerp_x.weight": draw.vector(n, mean=0.5),
        "time_mix_lerp_fused.weight": draw.vector(5, 1, 1, n, mean=0.5),
        "time_mix_w1.weight": draw.matrix(40, n),
        "time_mix_w2.weight": draw.matrix(5 * n, 8).reshape(5, n, 8),
        "time_mix_decay.weight": draw.vector(n, mean=-1.0),
        "time_mix_decay_w1.weight": draw.matrix(12, n),
        "time_mix_decay_w2.weight": draw.matrix(n, 12),
    }


def norms(draw: Draw, s: Shape, *names: str) -> dict[str, Array]:
    """With a bias each."""
    return {f"{name}.{kind}": draw.vector(s.n_embd, mean=mean) for name in names for kind, mean in (("weight", 1.0), ("bias", 0.0))}


def rwkv6_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    n = s.n_embd
    return (
        norms(draw, s, "attn_norm", "attn_norm_2", "time_mix_ln")
        | rwkv6_mix(draw, s, n // 16)
        | {
            "time_mix_first.weight": draw.vector(n // 16, 16),
            "channel_mix_lerp_k.weight": draw.vector(n, mean=0.5),
            "channel_mix_lerp_r.weight": draw.vector(n, mean=0.5),
            "channel_mix_key.weight": draw.matrix(s.n_ff, n),
            "channel_mix_value.weight": 0.5 * draw.matrix(n, s.n_ff),
            "channel_mix_receptance.weight": draw.matrix(n, n),
        }
    )


def transformed(draw: Draw, s: Shape) -> dict[str, Array]:
    """The tensors of transformers' layers beside their time mix."""
    return {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")} | gated(draw, s)


def rwkv6qwen2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    widths = {"receptance": s.n_embd, "key": 32, "value": 32}
    biases = {f"time_mix_{name}.bias": draw.vector(n, mean=0.0) for name, n in widths.items()}
    return transformed(draw, s) | rwkv6_mix(draw, s, 2) | biases


def rwkv7_mix(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    """Heads of 16 dims, short rows of 8, 12, 16 and 24."""
    n, small = s.n_embd, ("k_k", "k_a", "r_k", "w0", "a0", *(["v0"] if layer else []))
    ranks = {"w": 8, "a": 12, "g": 24} | ({"v": 16} if layer else {})
    return (
        {f"time_mix_{name}.weight": draw.vector(n, mean=0.5) for name in small}
        | {f"time_mix_{name}.weight": draw.matrix(n, n) for name in ("receptance", "key", "value", "output")}
        | {f"time_mix_{name}1.weight": draw.matrix(rank, n) for name, rank in ranks.items()}
        | {f"time_mix_{name}2.weight": draw.matrix(n, rank) for name, rank in ranks.items()}
        | {"time_mix_lerp_fused.weight": draw.vector(6, 1, 1, n, mean=0.5)}
    )


def rwkv7_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    n = s.n_embd
    return (
        norms(draw, s, "attn_norm", "attn_norm_2", "time_mix_ln")
        | rwkv7_mix(draw, s, layer)
        | {
            "channel_mix_lerp_k.weight": draw.vector(n, mean=0.5),
            "channel_mix_key.weight": draw.matrix(s.n_ff, n),
            "channel_mix_value.weight": 0.5 * draw.matrix(n, s.n_ff),
        }
    )


def arwkv7_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    return transformed(draw, s) | rwkv7_mix(draw, s, layer)


def rwkv_keys(s: Shape) -> dict[str, Any]:
    return {
        "attention.head_count": 0,
        "attention.head_count_kv": None,
        "attention.layer_norm_rms_epsilon": None,
        "attention.layer_norm_epsilon": s.eps,
        "wkv.head_size": 16,
    }


def rwkv6_keys(s: Shape) -> dict[str, Any]:
    return rwkv_keys(s) | {"time_mix_extra_dim": 8, "time_decay_extra_dim": 12, "rescale_every_n_layers": 2}


def rwkv6qwen2_keys(s: Shape) -> dict[str, Any]:
    return {
        "attention.head_count": 0,
        "attention.head_count_kv": 2,
        "wkv.head_size": 16,
        "time_mix_extra_dim": 8,
        "time_decay_extra_dim": 12,
        "token_shift_count": 1,
    }


def rwkv7_keys(s: Shape) -> dict[str, Any]:
    return rwkv_keys(s) | {
        "attention.decay_lora_rank": 8,
        "attention.iclr_lora_rank": 12,
        "attention.value_residual_mix_lora_rank": 16,
        "attention.gate_lora_rank": 24,
    }


def arwkv7_keys(s: Shape) -> dict[str, Any]:
    return {name: value for name, value in rwkv7_keys(s).items() if "norm" not in name} | {"token_shift_count": 1}


def rwkv_ends(draw: Draw, s: Shape) -> dict[str, Array]:
    return norms(draw, s, "token_embd_norm", "output_norm")


def delta_keys(s: Shape) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 128,
        "ssm.state_size": 32,
        "ssm.time_step_rank": 4,
        "ssm.group_count": 2,
        "attention.recurrent_layers": [bool(i % 2) for i in range(s.n_layers)],
    }


def delta_expert_keys(s: Shape) -> dict[str, Any]:
    return delta_keys(s) | {
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_feed_forward_length": s.n_ff // 2,
        "expert_shared_feed_forward_length": s.n_ff // 2,
    }


def lfm2_keys(s: Shape) -> dict[str, Any]:
    return {"shortconv.l_cache": 3, "attention.head_count_kv": [0 if i % 2 else s.n_kv_heads for i in range(s.n_layers)]}


def token_norm(draw: Draw, s: Shape) -> dict[str, Array]:
    return {"token_embd_norm.weight": draw.vector(s.n_embd)}


HYBRIDS = {
    **SSM,
    "rwkv6": Hybrid(rwkv6_keys, rwkv6_block, rwkv_ends),
    "rwkv6qwen2": Hybrid(rwkv6qwen2_keys, rwkv6qwen2_block, output_norm),
    "rwkv7": Hybrid(rwkv7_keys, rwkv7_block, rwkv_ends),
    "arwkv7": Hybrid(arwkv7_keys, arwkv7_block, output_norm),
    "qwen35": Hybrid(delta_keys, qwen35_block, output_norm),
    "qwen35moe": Hybrid(delta_expert_keys, qwen35moe_block, output_norm),
    "qwen3next": Hybrid(delta_expert_keys, qwen3next_block, output_norm),
    "lfm2": Hybrid(lfm2_keys, lfm2_block, token_norm),
    "lfm2moe": Hybrid(lfm2_keys, lfm2_block, token_norm),
}
