"""mamba2: Mamba 2, and Codestral Mamba."""

from __future__ import annotations

from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm layers without feed-forward blocks."""
    model = Transformer(keys, g)
    sizes = mamba2_sizes(keys)
    x = model.embed()
    for layer in model.layers():
        x = add(g, x, mamba2(g, layer.block, layer.norm(x, "attn_norm"), sizes, model.eps))
    model.logits(x)
