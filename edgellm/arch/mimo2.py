"""mimo2: MiMo-V2; sliding layers with more key heads, learned sinks and a base of their own, experts in most layers."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale

SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none


def build(keys: Keys, g: Builder) -> None:
    """Blocks of partly rotated attention; the tensors say which layers have experts, which learned sinks. The last ones draft."""
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True))
    windows = layer_windows(keys, 1, drafting=model.drafting)
    ropes = (model.rope("neox"), sliding_rope(keys, model.dim_k, SLIDING_BASE))
    ropes = (ropes[0], replace(ropes[1], n_rot=ropes[0].n_rot))
    scale_of_values = keys.optional("attention.value_scale") or 1.0
    x = model.embed()
    for layer in model.layers(drafting=False):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        learned_sinks = f"{layer.block}.attn_sinks" if layer.has("attn_sinks") else None
        y = layer.heads_output(q, k, v, ropes[windows[layer.index] is not None], windows[layer.index], learned_sinks)
        x = add(g, x, layer.output(scale(g, y, scale_of_values)))
        x = add(g, x, layer.any_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
