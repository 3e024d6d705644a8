"""nemotron_h: Nemotron-H, Nemotron Nano 2 and 3 (nemotron_h_moe: with experts); Mamba 2, attention or a feed-forward per layer."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import hybrid_heads
from edgellm.arch.blocks.ffn import plain_ffn
from edgellm.arch.blocks.moe import Experts, experts_of, has_experts
from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import add

ACT = "relu_squared"


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm layers that know no positions: a feed-forward where it has a width, attention where there are key heads, else
    Mamba 2. The last layers may draft tokens.
    """
    heads, lengths = hybrid_heads(keys), keys.per_layer("feed_forward_length", 0)
    model = Transformer(keys, g, heads=heads)
    routed, sizes = has_experts(keys), mamba2_sizes(keys)
    x = model.embed()
    for layer, n_ff in zip(model.layers(drafting=False), lengths, strict=False):
        y = layer.norm(x, "attn_norm")
        if n_ff:
            y = layer.moe(y, _experts(keys, layer.index)) if routed else plain_ffn(g, layer.block, y, n_ff, ACT)
        elif layer.attends:
            y = layer.attention(*layer.qkv(y))
        else:
            y = mamba2(g, layer.block, y, sizes, model.eps)
        x = add(g, x, y)
    model.logits(x)


def _experts(keys: Keys, layer: int) -> Experts:
    latent = keys.integer("moe_latent_size", 0, MAX_WIDTH, default=0)
    return replace(experts_of(keys, gating="sigmoid", normalise=True, layer=layer), act=ACT, plain=True, latent=latent)
