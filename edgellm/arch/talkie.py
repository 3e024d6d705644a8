"""talkie: Talkie 1930; norms without weights, normed embeddings added behind every layer, a factor for each query head."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scaled_by
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks, whose heads are normed behind their rotation."""
    model = Transformer(keys, g)
    g.own_scales("attn_output", "ffn_down")
    turn = model.rope("neox")
    x = first = model.norm(model.embed())
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x))
        q = rms_norm(g, rope(g, q, turn, layer.heads.n), f"{layer.block}.attn_q_norm", model.eps, layer.heads.n, own="one")
        k = layer.norm(rope(g, k, turn, layer.heads.n_kv), groups=layer.heads.n_kv)
        x = add(g, x, layer.attention(q, k, v))
        x = add(g, x, layer.gated_ffn(layer.norm(x)))
        x = add(g, x, scaled_by(g, first, f"{layer.block}.layer_output_scale.weight", one=True))
    model.logits(x, keys.number("logit_scale"), norm=None)
