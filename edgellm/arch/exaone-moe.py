"""exaone-moe: K-EXAONE; pre-norm blocks with normed heads, sliding layers alone know positions, sigmoid routing with a bias."""

from __future__ import annotations

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.moe import experts_of, leading_dense
from edgellm.arch.blocks.transformer import Transformer, drafting_layers
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer sees everything, where some slide


def build(keys: Keys, g: Builder) -> None:
    """First layers without experts, shared experts in the others. Models without a window rotate in every layer; the last draft."""
    dense = leading_dense(keys)
    drafting = drafting_layers(g, keys)
    windows, experts = layer_windows(keys, PERIOD, drafting=drafting), experts_of(keys, gating="sigmoid", normalise=True)
    model = Transformer(keys, g, experts=experts)
    rope, slides = model.rope("neox"), any(windows)
    x = model.embed()
    for layer in model.layers(drafting):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, None if slides and windows[layer.index] is None else rope, windows[layer.index]))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.gated_ffn(y) if layer.index < dense else layer.moe(y))
    model.logits(x)
