"""olmo: OLMo 1 and 1.7; layer norms without weights, queries, keys and values within bounds."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, clamp
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    model = Transformer(keys, g, layer_norm)
    limit = keys.optional("attention.clamp_kqv")
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        q, k, v = (clamp(g, y, limit) for y in layer.qkv(layer.norm(x)))
        x = add(g, x, layer.attention(q, k, v, rope))
        x = add(g, x, layer.gated_ffn(layer.norm(x)))
    model.logits(x, norm=None)
