"""mamba: Mamba 1, and Falcon Mamba, which normalises what the scan depends on."""

from __future__ import annotations

from edgellm.arch.blocks.recurrent import mamba, ssm_sizes
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm layers without feed-forward blocks; files may have an epsilon of their own for what the scan depends on."""
    model = Transformer(keys, g)
    sizes = ssm_sizes(keys)
    normalised = keys.number("ssm.dt_b_c_rms_epsilon", default=model.eps) if keys.flag("ssm.dt_b_c_rms", default=False) else None
    x = model.embed()
    for layer in model.layers():
        x = add(g, x, mamba(g, layer.block, layer.norm(x, "attn_norm"), sizes, normalised))
    model.logits(x)
