"""laguna: Poolside's Laguna; attention with a softplus gate, for each head or each column, sigmoid routing, most layers slide."""

from __future__ import annotations

from edgellm.arch.blocks.attention import gated_output, sliding_layers, sliding_window
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # of files that do not list them: every fourth layer, the first one too, sees everything


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of normed heads, of which sliding layers may have others; models without a window see everything."""
    window = sliding_window(keys)
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True, shared=1))
    slides = sliding_layers(keys, PERIOD, first=True)
    full = model.rope("neox")
    ropes = (full, sliding_rope(keys, model.dim_k, full.base))
    x = model.embed()
    for layer in model.layers():
        seen = window if slides[layer.index] else None
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.normed_heads(q, k)
        y = layer.heads_output(q, k, v, ropes[seen is not None], seen)
        by_head = g.tensors.get(f"{layer.block}.attn_gate.weight", ())[:1] == (layer.heads.n,)
        y = gated_output(g, layer.block, h, y, "softplus", layer.heads.n if by_head else 0)
        x = add(g, x, layer.output(y))
        x = add(g, x, layer.dense_or_moe(layer.norm(x, "ffn_norm")))
    model.logits(x)
