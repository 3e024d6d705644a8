"""cohere2moe: Cohere 2 with experts; parallel blocks, rotation in layers that slide and in the first ones."""

from __future__ import annotations

from edgellm.arch.blocks.attention import sliding_layers, sliding_window
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale
from edgellm.ops.norm import layer_norm, rms_norm

PERIOD = 4  # of files that do not list them: every fourth layer, the first one too, sees everything


def build(keys: Keys, g: Builder) -> None:
    """Parallel blocks after one norm; half of what routed and shared experts give together. The last layers draft."""
    norm = rms_norm if keys.has("attention.layer_norm_rms_epsilon") else layer_norm
    window, experts = sliding_window(keys), experts_of(keys, gating="sigmoid", normalise=False)
    model = Transformer(keys, g, norm, experts=experts)
    slides = sliding_layers(keys, PERIOD, model.drafting, first=True)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers(drafting=False):
        seen = window if slides[layer.index] else None
        h = layer.norm(x, "attn_norm")
        leads = layer.index < model.leading_dense
        x = add(g, x, layer.attention(*layer.qkv(h), rope if slides[layer.index] or leads else None, seen))
        y = layer.dense_or_moe(h)
        x = add(g, x, scale(g, y, 0.5) if experts.n_ff_shared and not leads else y)
    model.logits(x, keys.number("logit_scale"))
