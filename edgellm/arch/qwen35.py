"""qwen35: Qwen 3.5 dense; gated delta nets, and gated attention in every fourth layer."""

from __future__ import annotations

from edgellm.arch.blocks.attention import gated_attention, gated_heads
from edgellm.arch.blocks.recurrent import delta_sizes, gated_delta_net, recurrent_layers
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

INTERLEAVED_AXES = True


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks. Positions are those of text, for which all sections of the rotation are the same."""
    model, sizes = Transformer(keys, g, heads=gated_heads(keys)), delta_sizes(keys)
    rope = model.rope("neox")
    recurrent = recurrent_layers(keys, model.drafting)
    x = model.embed()
    for layer in model.layers(drafting=False):
        y = layer.norm(x, "attn_norm")
        if recurrent[layer.index]:
            y = gated_delta_net(g, layer.block, y, sizes, model.eps)
        else:
            y = gated_attention(g, layer.block, y, layer.heads, rope, model.eps)
        x = add(g, x, y)
        x = add(g, x, layer.gated_ffn(layer.norm(x, "post_attention_norm")))
    model.logits(x)
