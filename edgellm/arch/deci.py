"""deci: Llama Nemotron Super and Ultra, DeciLM; llama whose layers differ: attention, one matrix in its place, or neither."""

from __future__ import annotations

from edgellm.arch.blocks.attention import hybrid_heads
from edgellm.arch.blocks.ffn import gated_ffn
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks. A layer without key heads has a matrix instead of attention, and nothing where it has no heads at all."""
    model = Transformer(keys, g, heads=hybrid_heads(keys))
    rope = model.rope("norm") if model.dim_k else None
    n_heads, lengths = keys.per_layer("attention.head_count", 0), keys.per_layer("feed_forward_length", 0)
    x = model.embed()
    for layer, n, n_ff in zip(model.layers(), n_heads, lengths, strict=True):
        if n:
            y = layer.norm(x, "attn_norm")
            x = add(g, x, layer.attention(*layer.qkv(y), rope) if layer.attends else layer.output(y))
        if n_ff:
            x = add(g, x, gated_ffn(g, layer.block, layer.norm(x, "ffn_norm"), n_ff, "silu"))
    model.logits(x)
