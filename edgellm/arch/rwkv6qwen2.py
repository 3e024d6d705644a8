"""rwkv6qwen2: QRWKV6, Qwen 2.5 whose attention was replaced by RWKV-6's time mix."""

from __future__ import annotations

from edgellm.arch.blocks.rwkv import head_size, time_mix_6
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm layers of a time mix, whose heads may share keys and values, and a gated feed-forward."""
    model, size = Transformer(keys, g), head_size(keys)
    heads = keys.n_embd // size
    shared = keys.integer("attention.head_count_kv", 0, heads, default=0) or heads
    if heads % shared:
        raise keys.bad("attention.head_count_kv", f"{shared} does not divide the {heads} heads")
    x = model.embed()
    for layer in model.layers():
        x = add(g, x, time_mix_6(g, keys, layer.block, layer.norm(x, "attn_norm"), size, shared, transformed=True))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
