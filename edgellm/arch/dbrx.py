"""dbrx: DBRX; layer norms without bias, bounded queries, keys and values, experts in every layer."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, clamp
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention and softmax routing, whose weights sum to 1."""
    model = Transformer(keys, g, layer_norm, experts=experts_of(keys, normalise=True))
    limit, rope = keys.number("attention.clamp_kqv"), model.rope("neox")
    x = model.embed()
    for layer in model.layers():
        q, k, v = (clamp(g, y, limit) for y in layer.fused_qkv(layer.norm(x, "attn_norm")))
        x = add(g, x, layer.attention(q, k, v, rope))
        x = add(g, x, layer.moe(layer.norm(x, "attn_output_norm")))
    model.logits(x)
