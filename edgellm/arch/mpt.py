"""mpt: MPT, Replit code and SEA-LION; positions are biases of scores (ALiBi) or a learned table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import attention, fused_qkv, heads_of
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, clamp, embed, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks with layer norms, one fused query-key-value tensor and a plain gelu feed-forward; biases are optional."""
    eps, limit = norm_epsilon(keys), keys.optional("attention.clamp_kqv")
    max_bias = keys.optional("attention.max_alibi_bias") or 0.0
    heads = tuple(replace(head, max_bias=max_bias) for head in heads_of(keys))
    x = token_embedding(g, keys)
    if "position_embd.weight" in tensors:
        x = add(g, x, embed(g, "position_embd", keys.context_length, keys.n_embd, "positions"))
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = (clamp(g, y, limit) for y in fused_qkv(g, head, block, layer_norm(g, x, f"{block}.attn_norm", eps)))
        if f"{block}.attn_q_norm.weight" in tensors:
            q, k = layer_norm(g, q, f"{block}.attn_q_norm", eps), layer_norm(g, k, f"{block}.attn_k_norm", eps)
        x = add(g, x, matmul(g, attention(g, head, q, k, v), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, plain_ffn(g, block, layer_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu_erf"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
