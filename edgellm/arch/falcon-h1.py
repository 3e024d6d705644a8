"""falcon-h1: Falcon-H1; every layer has attention and a Mamba 2 layer side by side."""

from __future__ import annotations

from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks. Converters multiply the model's factors into its weights; only some models normalise after the scan."""
    model = Transformer(keys, g)
    sizes = mamba2_sizes(keys)
    rope = model.rope("neox")
    normalised = any(name.endswith(".ssm_norm.weight") for name in g.tensors)
    x = model.embed()
    for layer in model.layers():
        y = layer.norm(x, "attn_norm")
        q, k, v = layer.qkv(y)
        x = add(g, x, mamba2(g, layer.block, y, sizes, model.eps, normalised=normalised))
        x = add(g, x, layer.attention(q, k, v, rope))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
