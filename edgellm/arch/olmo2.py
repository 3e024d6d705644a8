"""olmo2: OLMo 2 and 3; norms after each half of a block and over whole rows of queries and keys, windows in OLMo 3."""

from __future__ import annotations

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.positions import MAX_BASE
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import Keys
from edgellm.ops.dense import add

PERIOD = 4  # every fourth layer sees everything, where some slide


def build(keys: Keys, g: Builder) -> None:
    """Post-norm blocks; position scaling acts on the layers that see everything only."""
    model = Transformer(keys, g)
    windows = layer_windows(keys, PERIOD)
    rope_full = model.rope("neox")
    sliding_base = keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE) or rope_full.base
    rope_sliding = RopeSpec(rope_full.n_rot, "neox", sliding_base)
    x = model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(x)
        q, k = layer.normed_rows(q, k)
        y = layer.attention(q, k, v, rope_full if windows[layer.index] is None else rope_sliding, windows[layer.index])
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        x = add(g, x, layer.norm(layer.gated_ffn(x), "post_ffw_norm"))
    model.logits(x)
