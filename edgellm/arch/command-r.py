"""command-r: Command R, R+ and Aya; attention and feed-forward side by side, heads normalised in the larger ones."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Parallel blocks after one layer norm; logits are scaled."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        h = layer_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, h)
        if f"{block}.attn_q_norm.weight" in tensors:
            q = layer_norm(g, q, f"{block}.attn_q_norm", eps, head.n)
            k = layer_norm(g, k, f"{block}.attn_k_norm", eps, head.n_kv)
        y = rotated_attention(g, head, q, k, v, rope)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, h, n_ff, "silu"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps), keys.number("logit_scale"))
