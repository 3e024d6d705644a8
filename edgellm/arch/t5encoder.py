"""t5encoder: the encoders of T5, such as Sentence-T5 and GTR; scores have biases by distance, and no other positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import attention, heads_of, project_qkv
from edgellm.arch.blocks.ends import norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn, plain_ffn
from edgellm.arch.blocks.pooling import embedding
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul
from edgellm.ops.norm import rms_norm

CAUSAL = False


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks. Layers without biases of their own take the first one's; scores are not scaled."""
    eps, buckets = norm_epsilon(keys), keys.integer("attention.relative_buckets_count", 8, 2**12)
    if buckets % 4:
        raise keys.bad("attention.relative_buckets_count", f"{buckets} is not a multiple of 4")
    if keys.causal:
        raise keys.bad("attention.causal", "an encoder with biases by distance sees what comes after a token as well")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads_of(keys), ffn_lengths(keys), strict=True)):
        block = f"enc.blk.{layer}"
        own = f"{block}.attn_rel_b"
        relative = own if f"{own}.weight" in tensors else "enc.blk.0.attn_rel_b"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = attention(g, replace(head, scale=1.0), q, k, v, relative=(relative, buckets))
        x = add(g, x, matmul(g, y, f"{block}.attn_o", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        gated = f"{block}.ffn_gate.weight" in tensors
        x = add(g, x, gated_ffn(g, block, y, n_ff, "gelu") if gated else plain_ffn(g, block, y, n_ff, "relu"))
    embedding(g, keys, rms_norm(g, x, "enc.output_norm", eps))
