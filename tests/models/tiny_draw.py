"""Parts of tiny models with recurrent layers: random weights, the parts that several families have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tiny_moe

Array = npt.NDArray[Any]
Shape = Any  # tiny_models.Shape, which imports this module


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

    def experts(self, s: Shape, arch: str) -> dict[str, Array]:
        """Those that `tiny_moe` makes."""
        return {name.partition(".")[2]: array for name, array in tiny_moe.tensors(arch, "", s, self._rng).items()}

    def vector(self, *shape: int, mean: float = 1.0, deviation: float = 0.2) -> Array:
        return (mean + deviation * self._rng.standard_normal(shape)).astype(np.float32)


def gated(draw: Draw, s: Shape, width: int = 0) -> dict[str, Array]:
    """A gated feed-forward."""
    n_ff = width or s.n_ff
    return {
        "ffn_gate.weight": draw.matrix(n_ff, s.n_embd),
        "ffn_up.weight": draw.matrix(n_ff, s.n_embd),
        "ffn_down.weight": draw.matrix(s.n_embd, n_ff),
    }


def attention(draw: Draw, s: Shape, gates: int = 1) -> dict[str, Array]:
    """Projections and norms of heads. `gates`: 2 where queries come with a gate each."""
    n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
    return {
        "attn_q.weight": draw.matrix(gates * n_q, s.n_embd),
        "attn_k.weight": draw.matrix(n_kv, s.n_embd),
        "attn_v.weight": draw.matrix(n_kv, s.n_embd),
        "attn_output.weight": draw.matrix(s.n_embd, n_q),
        "attn_q_norm.weight": draw.vector(s.head_dim),
        "attn_k_norm.weight": draw.vector(s.head_dim),
    }


def output_norm(draw: Draw, s: Shape) -> dict[str, Array]:
    return {"output_norm.weight": draw.vector(s.n_embd)}


def feed_forward(draw: Draw, s: Shape, layer: int, arch: str) -> dict[str, Array]:
    """A dense one, or experts where the model has them."""
    if not s.n_experts or layer < s.n_dense:
        return gated(draw, s)
    return draw.experts(s, arch)
