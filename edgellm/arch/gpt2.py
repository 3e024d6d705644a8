"""gpt2: GPT-2 and its fine-tunes; learned positions, so the context cannot slide, and biases everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import attention, fused_qkv, heads_of
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, embed, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks with layer norms, one fused query-key-value tensor and a plain gelu feed-forward."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    x = token_embedding(g, keys)
    x = add(g, x, embed(g, "position_embd", keys.context_length, keys.n_embd, "positions"))
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        y = attention(g, head, *fused_qkv(g, head, block, layer_norm(g, x, f"{block}.attn_norm", eps)))
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, plain_ffn(g, block, layer_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
