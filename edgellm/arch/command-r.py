"""command-r: Command R, R+ and Aya; attention and feed-forward side by side, heads normalised in the larger ones."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Parallel blocks after one layer norm; logits are scaled."""
    model = Transformer(keys, g, layer_norm)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.normed_heads_if_any(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        x = add(g, x, layer.gated_ffn(h))
    model.logits(x, keys.number("logit_scale"))
