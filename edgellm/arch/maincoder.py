"""maincoder: Maincoder 1B; every head's query and key is normalised after its rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from edgellm.arch.blocks.attention import attention, heads_of, project_qkv
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder, *, style: Literal["norm", "neox"] = "norm") -> None:
    """Pre-norm blocks with one norm weight (head_dim,) for all query heads and one for all key heads. `style`: of rotation."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    spec = rope_spec(keys, tensors, g.context, heads[0].dim_k, style)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q = rms_norm(g, rope(g, q, spec, head.n), f"{block}.attn_q_norm", eps, head.n)
        k = rms_norm(g, rope(g, k, spec, head.n_kv), f"{block}.attn_k_norm", eps, head.n_kv)
        x = add(g, x, matmul(g, attention(g, head, q, k, v), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
