"""bailingmoe2: Ling and Ring 2.0; one matrix for queries, keys and values, sigmoid routing with groups."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks whose heads are normalised and rotated in part; a dense layer first, then experts. The last layers draft."""
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True))
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers(drafting=False):
        q, k, v = layer.fused_qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.dense_or_moe(y))
    model.logits(x)
