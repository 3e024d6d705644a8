"""hy_v3: Hunyuan 3; normed heads, sigmoid routing and a shared expert after the first layers."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; the tensors say which layers have experts. The last ones draft."""
    model = Transformer(keys, g, experts=experts_of(keys, gating="sigmoid", normalise=True, shared=1))
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers(drafting=False):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        x = add(g, x, layer.any_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
