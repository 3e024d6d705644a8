"""olmo: OLMo 1 and 1.7; layer norms without weights, queries, keys and values within bounds."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, clamp, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    eps, heads, limit = norm_epsilon(keys), heads_of(keys), keys.optional("attention.clamp_kqv")
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = (clamp(g, y, limit) for y in project_qkv(g, head, block, layer_norm(g, x, None, eps)))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, layer_norm(g, x, None, eps), n_ff, "silu"))
    logits(g, keys, layer_norm(g, select(g, x), None, eps))
