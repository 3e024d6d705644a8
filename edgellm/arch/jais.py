"""jais: Jais; GPT-2 with a silu-gated feed-forward, whose positions are biases of scores (ALiBi)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import attention, fused_qkv, heads_of
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm

MAX_BIAS = 8.0  # of scores in files that do not say it


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks with layer norms and biases; scores are divided by the length of a head, not by its root."""
    eps, max_bias = norm_epsilon(keys), keys.optional("attention.max_alibi_bias") or MAX_BIAS
    heads = tuple(replace(head, max_bias=max_bias, scale=1.0 / head.dim_k) for head in heads_of(keys))
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        y = attention(g, head, *fused_qkv(g, head, block, layer_norm(g, x, f"{block}.attn_norm", eps)))
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, layer_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
