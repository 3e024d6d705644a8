"""qwen35moe: Qwen 3.5 with experts, otherwise as qwen35."""

from __future__ import annotations

from edgellm.arch.blocks.attention import gated_attention, gated_heads
from edgellm.arch.blocks.moe import experts_of, has_experts
from edgellm.arch.blocks.recurrent import delta_sizes, gated_delta_net, recurrent_layers
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

INTERLEAVED_AXES = True


def build(keys: Keys, g: Builder, *, grouped: bool = False) -> None:
    """Pre-norm blocks; the experts' weights sum to 1, and a token says how much its shared expert counts. Layers without a router
    are dense. `grouped`: see blocks.recurrent.gated_delta_net.
    """
    experts = experts_of(keys, normalise=True) if has_experts(keys) else None
    model, sizes = Transformer(keys, g, heads=gated_heads(keys), experts=experts), delta_sizes(keys)
    rope = model.rope("neox")
    recurrent = recurrent_layers(keys, model.drafting)
    x = model.embed()
    for layer in model.layers(drafting=False):
        y = layer.norm(x, "attn_norm")
        if recurrent[layer.index]:
            y = gated_delta_net(g, layer.block, y, sizes, model.eps, grouped=grouped)
        else:
            y = gated_attention(g, layer.block, y, layer.heads, rope, model.eps)
        x = add(g, x, y)
        x = add(g, x, layer.any_ffn(layer.norm(x, "post_attention_norm"), gated=True))
    model.logits(x)
