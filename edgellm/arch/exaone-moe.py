"""exaone-moe: K-EXAONE; pre-norm blocks with normed heads, sliding layers alone know positions, sigmoid routing with a bias."""

from __future__ import annotations

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer sees everything, where some slide


def build(keys: Keys, g: Builder) -> None:
    """First layers without experts, shared experts in the others. Models without a window rotate in every layer; the last draft."""
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True))
    windows = layer_windows(keys, PERIOD, drafting=model.drafting)
    rope, slides = model.rope("neox"), any(windows)
    x = model.embed()
    for layer in model.layers(drafting=False):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, None if slides and windows[layer.index] is None else rope, windows[layer.index]))
        x = add(g, x, layer.dense_or_moe(layer.norm(x, "ffn_norm")))
    model.logits(x)
