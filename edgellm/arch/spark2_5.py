"""spark2_5: Spark X2.5; a gate for each head of attention, gelu, layers that slide with angles of their own."""

from __future__ import annotations

from edgellm.arch.blocks.attention import gated_output, layer_windows
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer sees everything, where the file does not say which


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention and a gelu-gated feed-forward; its setting names the exact gelu."""
    model = Transformer(keys, g)
    windows = layer_windows(keys, PERIOD)
    full = model.rope("neox")
    ropes = (full, sliding_rope(keys, model.dim_k, full.base))
    x = model.embed()
    for layer in model.layers():
        window = windows[layer.index]
        h = layer.norm(x, "attn_norm")
        q, k, v = layer.fused_qkv(h)
        y = layer.heads_output(q, k, v, ropes[window is not None], window)
        x = add(g, x, layer.output(gated_output(g, layer.block, h, y, "sigmoid", layer.heads.n)))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm"), "gelu_erf"))
    model.logits(x)
