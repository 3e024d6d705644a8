"""mistral3: Ministral 3 and Mistral Small 3; llama whose queries grow with the logarithm of their position."""

from __future__ import annotations

import math
from dataclasses import replace

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.positions import temperature
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.rope import rope as rotate


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    model = Transformer(keys, g)
    rope = model.rope("norm")
    if rope.yarn is not None:
        multiplier = keys.number("rope.scaling.yarn_log_multiplier", default=0.0, zero=True)
        rope = replace(rope, magnitude=rope.magnitude / (1.0 - 0.1 * multiplier * math.log(rope.freq_scale)))
    q_rope = replace(rope, temperature=temperature(keys))
    x = model.embed()
    windows = layer_windows(keys, keys.n_layers + 1)  # all slide where the file does not list them
    for layer, window in zip(model.layers(), windows, strict=True):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = rotate(g, q, q_rope, layer.heads.n), rotate(g, k, rope, layer.heads.n_kv)
        y = layer.heads_output(q, k, v, window=window)
        x = add(g, x, layer.output(y))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
