"""falcon: Falcon 7B, 40B and 180B; attention and feed-forward side by side, with a norm each in the larger ones."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, heads_of, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Parallel blocks of rotated attention and a plain gelu feed-forward."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        h = layer_norm(g, x, f"{block}.attn_norm", eps)
        own = layer_norm(g, x, f"{block}.attn_norm_2", eps) if f"{block}.attn_norm_2.weight" in tensors else h
        y = rotated_attention(g, head, *fused_qkv(g, head, block, own), rope)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, plain_ffn(g, block, h, n_ff, "gelu_erf"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
