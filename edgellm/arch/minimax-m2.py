"""minimax-m2: MiniMax-M2; queries and keys are normalised over all heads at once, sigmoid routing with a bias."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of partly rotated attention and a mixture of experts."""
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True))
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_rows(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        x = add(g, x, layer.moe(layer.norm(x, "ffn_norm")))
    model.logits(x)
