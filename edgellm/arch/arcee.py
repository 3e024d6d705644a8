"""arcee: AFM 4.5B; llama with a plain feed-forward of squared relus."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs)."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, plain_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "relu_squared"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
