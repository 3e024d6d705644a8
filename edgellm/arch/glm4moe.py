"""glm4moe: GLM-4.5, 4.6 and Air; half of each head rotated, sigmoid routing with a bias, layers that draft left out."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks, whose heads are normalised where the file has the weights (not Air). The last layers draft tokens."""
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True))
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers(drafting=False):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        if layer.has("attn_q_norm"):
            q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        y = layer.norm(x, "post_attention_norm")
        x = add(g, x, layer.dense_or_moe(y))
    model.logits(x)
