"""What norms of a model have in common, and those of heads."""

from __future__ import annotations

from edgellm.arch.blocks.attention import Heads
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.norm import rms_norm


def norm_epsilon(keys: Keys) -> float:
    """What all norms of the model add to the variance."""
    rms, plain = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
    return keys.number(plain if keys.has(plain) and not keys.has(rms) else rms, high=1.0, zero=True)


def normed_heads(g: Builder, heads: Heads, block: str, q: Value, k: Value, eps: float) -> tuple[Value, Value]:
    """Queries and keys, each head normalised by itself."""
    return rms_norm(g, q, f"{block}.attn_q_norm", eps, heads.n), rms_norm(g, k, f"{block}.attn_k_norm", eps, heads.n_kv)
