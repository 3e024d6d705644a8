"""bailingmoe2: Ling and Ring 2.0; one matrix for queries, keys and values, sigmoid routing with groups."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of, leading_dense
from edgellm.arch.blocks.transformer import Transformer, drafting_layers
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks whose heads are normalised and rotated in part; a dense layer first, then experts. The last layers draft."""
    dense = leading_dense(keys)
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True))
    rope = model.rope("neox")
    drafting = drafting_layers(g, keys)
    x = model.embed()
    for layer in model.layers(drafting):
        q, k, v = layer.fused_qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.gated_ffn(y) if layer.index < dense else layer.moe(y))
    model.logits(x)
