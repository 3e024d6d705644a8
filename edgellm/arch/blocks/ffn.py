"""Feed-forward blocks."""

from __future__ import annotations

from edgellm.errors import Unsupported
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.dense import activation, clamp, columns, matmul, mul


def ffn_lengths(keys: Keys, *, experts: bool = False) -> tuple[int, ...]:
    """The width of each layer's dense feed-forward. Raises BadHParam; Unsupported where layers may have no `experts`."""
    if not experts and (n := keys.integer("expert_count", 0, 2**16, default=0)):
        raise Unsupported(
            f"this architecture has no experts, and the file has {n}; take a dense model of the same family",
            file=keys.file,
            field=f"{keys.architecture}.expert_count",
        )
    return keys.per_layer("feed_forward_length")


def gated_ffn(g: Builder, block: str, x: Value, n_ff: int, act: str, suffix: str = "", limit: float | None = None) -> Value:
    """down(act(gate(x)) * up(x)). `suffix`: what the names of the three tensors end with; `limit`: of both factors."""
    gate = matmul(g, x, f"{block}.ffn_gate{suffix}", n_ff)
    up = clamp(g, matmul(g, x, f"{block}.ffn_up{suffix}", n_ff), limit)
    return matmul(g, mul(g, clamp(g, activation(g, act, gate), limit), up), f"{block}.ffn_down{suffix}", g.n(x))


def fused_gated_ffn(g: Builder, block: str, x: Value, n_ff: int, act: str, suffix: str = "") -> Value:
    """The same with gate and up in one tensor, gate first."""
    both = matmul(g, x, f"{block}.ffn_up{suffix}", 2 * n_ff)
    gate, up = columns(g, both, 0, n_ff), columns(g, both, n_ff, 2 * n_ff)
    return matmul(g, mul(g, activation(g, act, gate), up), f"{block}.ffn_down{suffix}", g.n(x))


def plain_ffn(g: Builder, block: str, x: Value, n_ff: int, act: str, suffix: str = "") -> Value:
    """down(act(up(x))). `suffix`: what the names of both tensors end with."""
    up = matmul(g, x, f"{block}.ffn_up{suffix}", n_ff)
    return matmul(g, activation(g, act, up), f"{block}.ffn_down{suffix}", g.n(x))
