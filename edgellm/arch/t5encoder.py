"""t5encoder: the encoders of T5, such as Sentence-T5 and GTR; scores have biases by distance, and no other positions."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import attention
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

CAUSAL = False


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks. Layers without biases of their own take the first one's; scores are not scaled."""
    model, buckets = Transformer(keys, g), keys.integer("attention.relative_buckets_count", 8, 2**12)
    if buckets % 4:
        raise keys.bad("attention.relative_buckets_count", f"{buckets} is not a multiple of 4")
    if keys.causal:
        raise keys.bad("attention.causal", "an encoder with biases by distance sees what comes after a token as well")
    x = model.embed()
    for layer in model.layers(prefix="enc.blk"):
        relative = layer.block if layer.has("attn_rel_b") else "enc.blk.0"
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        y = attention(g, replace(layer.heads, scale=1.0), q, k, v, relative=(f"{relative}.attn_rel_b", buckets))
        x = add(g, x, layer.matmul(y, "attn_o", keys.n_embd))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.gated_ffn(y, "gelu") if layer.has("ffn_gate") else layer.plain_ffn(y, "relu"))
    embedding(g, keys, model.norm(x, "enc.output_norm"))
