"""BERT's encoder: tokens with their type, and blocks that normalise what they add."""

from __future__ import annotations

from collections.abc import Callable

from edgellm.arch.blocks.moe import Experts
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.transformer import Layer, Transformer
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.dense import add, embed
from edgellm.ops.norm import layer_norm

FeedForward = Callable[[Layer, Value], Value]


def typed_embedding(model: Transformer) -> Value:
    """(T, d) tokens; where a file has types, a text is "sentence A", and the second of a pair "sentence B"."""
    x, g, keys = model.embed(), model.g, model.keys
    if "token_types.weight" in g.tensors:
        x = add(g, x, embed(g, "token_types", keys.rows("token_types.weight"), keys.n_embd, "types"))
    return x


def rotary_encoder(keys: Keys, g: Builder, ffn: FeedForward, *, fused: bool, experts: Experts | None = None) -> None:
    """Post-norm blocks with rotary positions. `ffn`: the feed-forward; `fused`: queries, keys and values come from one tensor."""
    model = Transformer(keys, g, layer_norm, experts=experts)
    rope = model.rope("neox")
    x = model.norm(typed_embedding(model), "token_embd_norm")
    for layer in model.layers():
        y = layer.attention(*(layer.fused_qkv(x) if fused else layer.qkv(x)), rope)
        x = layer.norm(add(g, y, x), "attn_output_norm")
        x = layer.norm(add(g, ffn(layer, x), x), "layer_output_norm")
    embedding(g, keys, x)
