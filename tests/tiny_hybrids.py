"""Tensors and metadata of tiny models with recurrent layers, as `tiny_models` writes them: the first layer has attention."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = Any                      # tiny_models.Shape, which imports this module


@dataclass(frozen=True, slots=True)
class Hybrid:
    """`block(draw, shape, block, layer)`: the tensors of a layer by name; `ends`: those that are of no layer, but the embedding."""

    metadata: Callable[[Shape], dict[str, Any]]
    block: Callable[[Draw, Shape, int], dict[str, Array]]
    ends: Callable[[Draw, Shape], dict[str, Array]]

    def tensors(self, s: Shape, rng: np.random.Generator) -> dict[str, Array]:
        draw = Draw(rng)
        found = {"token_embd.weight": draw.matrix(s.n_vocab, s.n_embd)}
        for layer in range(s.n_layers):
            found |= {f"blk.{layer}.{name}": array for name, array in self.block(draw, s, layer).items()}
        found |= self.ends(draw, s)
        if not s.tied:
            found["output.weight"] = draw.matrix(s.n_vocab, s.n_embd)
        return found


class Draw:
    """Random weights whose products stay of the size of what they are multiplied with."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def matrix(self, rows: int, columns: int) -> Array:
        return self._rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(1.5 / columns**0.5)

    def vector(self, *shape: int, mean: float = 1.0, deviation: float = 0.2) -> Array:
        return (mean + deviation * self._rng.standard_normal(shape)).astype(np.float32)


def gated(draw: Draw, s: Shape, width: int = 0) -> dict[str, Array]:
    """A gated feed-forward."""
    n_ff = width or s.n_ff
    return {"ffn_gate.weight": draw.matrix(n_ff, s.n_embd), "ffn_up.weight": draw.matrix(n_ff, s.n_embd),
            "ffn_down.weight": draw.matrix(s.n_embd, n_ff)}


def attention(draw: Draw, s: Shape, gates: int = 1) -> dict[str, Array]:
    """Projections and norms of heads. `gates`: 2 where queries come with a gate each."""
    n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
    return {"attn_q.weight": draw.matrix(gates * n_q, s.n_embd), "attn_k.weight": draw.matrix(n_kv, s.n_embd),
            "attn_v.weight": draw.matrix(n_kv, s.n_embd), "attn_output.weight": draw.matrix(s.n_embd, n_q),
            "attn_q_norm.weight": draw.vector(s.head_dim), "attn_k_norm.weight": draw.vector(s.head_dim)}


def lfm2_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    norms = {f"{name}.weight": draw.vector(s.n_embd) for name in ("attn_norm", "ffn_norm")}
    if layer % 2:
        mixer = {"shortconv.in_proj.weight": draw.matrix(3 * s.n_embd, s.n_embd), "shortconv.conv.weight": draw.vector(s.n_embd, 3),
                 "shortconv.out_proj.weight": draw.matrix(s.n_embd, s.n_embd)}
    else:
        mixer = attention(draw, s)
    return {**norms, **mixer, **gated(draw, s)}


def mamba_block(draw: Draw, s: Shape, layer: int) -> dict[str, Array]:
    inner = 2 * s.n_embd
    return {"attn_norm.weight": draw.vector(s.n_embd), "ssm_in.weight": draw.matrix(2 * inner, s.n_embd),
            "ssm_conv1d.weight": draw.vector(inner, 4, mean=0.2), "ssm_conv1d.bias": draw.vector(inner, mean=0.0),
            "ssm_x.weight": draw.matrix(32 + 2 * 16, inner), "ssm_dt.weight": draw.matrix(inner, 32),
            "ssm_dt.bias": draw.vector(inner, mean=-1.0), "ssm_a": -np.abs(draw.vector(inner, 16)), "ssm_d": draw.vector(inner),
            "ssm_out.weight": draw.matrix(s.n_embd, inner)}


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


def output_norm(draw: Draw, s: Shape) -> dict[str, Array]:
    return {"output_norm.weight": draw.vector(s.n_embd)}


HYBRIDS = {
    "mamba": Hybrid(lambda s: {"ssm.conv_kernel": 4, "ssm.inner_size": 2 * s.n_embd, "ssm.state_size": 16,
                               "ssm.time_step_rank": 32},
                    mamba_block, output_norm),
    "qwen35": Hybrid(delta_keys, qwen35_block, output_norm),
    "qwen35moe": Hybrid(delta_expert_keys, qwen35moe_block, output_norm),
    "qwen3next": Hybrid(delta_expert_keys, qwen3next_block, output_norm),
    "lfm2": Hybrid(lambda s: {"shortconv.l_cache": 3, "attention.head_count_kv": [s.n_kv_heads, 0] * (s.n_layers // 2)
                              + [s.n_kv_heads] * (s.n_layers % 2)},
                   lfm2_block, lambda draw, s: {"token_embd_norm.weight": draw.vector(s.n_embd)}),
}
