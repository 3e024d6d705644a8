"""Decoders whose layers are all of one kind, given as data: rotated attention, then a feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from edgellm.arch.blocks.attention import sliding_window
from edgellm.arch.blocks.moe import Experts
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.transformer import Layer, Norm, Transformer
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import rms_norm


def decoder(
    style: Literal["norm", "neox"],
    norm: Norm = rms_norm,
    *,
    qkv: Callable[[Layer, Value], tuple[Value, Value, Value]] = Layer.qkv,
    normed: Callable[[Layer, Value, Value], tuple[Value, Value]] | None = None,
    ffn: Callable[[Layer, Value], Value] = Layer.gated_ffn,
    ffn_norm: str | None = "ffn_norm",
    experts: Callable[[Keys], Experts] | None = None,
    slides: bool = False,
    drafting: bool = True,
    embeds: str | None = None,
) -> Callable[[Keys, Builder], None]:
    """The `build` of an architecture with pre-norm blocks. `style`: of rotation; `norm`: the kind of all norms.

    `normed`: the norms of queries and keys, where there are some. `ffn_norm`: None where the feed-forward stands beside attention
    and has its norm. `slides`: all layers have the window of the file's key. `drafting`: see `Transformer.layers`. `embeds`: the
    last norm of a model that only makes vectors.
    """

    def build(keys: Keys, g: Builder) -> None:
        model = Transformer(keys, g, norm, experts=None if experts is None else experts(keys))
        window = sliding_window(keys) if slides else None
        rope, x = model.rope(style), model.embed()
        for layer in model.layers(drafting=drafting):
            h = layer.norm(x, "attn_norm")
            q, k, v = qkv(layer, h)
            if normed is not None:
                q, k = normed(layer, q, k)
            x = add(g, x, layer.attention(q, k, v, rope, window))
            x = add(g, x, ffn(layer, h if ffn_norm is None else layer.norm(x, ffn_norm)))
        if embeds is None:
            model.logits(x)
        else:
            embedding(g, keys, model.norm(x, embeds))

    return build
