"""arcee: AFM 4.5B; llama with a plain feed-forward of squared relus."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs)."""
    model = Transformer(keys, g)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.plain_ffn(layer.norm(x, "ffn_norm"), "relu_squared"))
    model.logits(x)
