"""ernie4_5: ERNIE 4.5 dense; llama under another name."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    model = Transformer(keys, g)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
