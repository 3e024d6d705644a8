"""hunyuan-moe: Hunyuan-A13B; heads are normalised after their rotation, one shared expert stands beside the routed ones."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.rope import rope


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention and a mixture of experts."""
    model = Transformer(keys, g, experts=experts_of(keys, normalise=True))
    turn = model.rope("neox")
    x = model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q = layer.norm(rope(g, q, turn, layer.heads.n), "attn_q_norm", layer.heads.n)
        k = layer.norm(rope(g, k, turn, layer.heads.n_kv), "attn_k_norm", layer.heads.n_kv)
        x = add(g, x, layer.attention(q, k, v))
        x = add(g, x, layer.moe(layer.norm(x, "ffn_norm")))
    model.logits(x)
