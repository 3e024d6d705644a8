"""falcon-h1: Falcon-H1; every layer has attention and a Mamba 2 layer side by side."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks. Converters multiply the model's factors into its weights; only some models normalise after the scan."""
    eps, sizes, heads = norm_epsilon(keys), mamba2_sizes(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    normalised = any(name.endswith(".ssm_norm.weight") for name in tensors)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, y)
        x = add(g, x, mamba2(g, block, y, sizes, eps, normalised=normalised))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
