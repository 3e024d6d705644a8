"""chameleon: Chameleon's language model; each head has a layer norm of its own, blocks of the larger one norm what comes out."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm

HEAD_EPSILON = 1e-5  # of the norms of heads: the makers have it in their code


def build(keys: Keys, g: Builder) -> None:
    """Blocks of rotated attention (neighbouring pairs) and a gated feed-forward, normed before (7B) or behind (30B)."""
    model = Transformer(keys, g)
    behind = keys.flag("swin_norm", default=False)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(x if behind else layer.norm(x, "attn_norm"))
        q = layer_norm(g, q, f"{layer.block}.attn_q_norm", HEAD_EPSILON, layer.heads.n)
        k = layer_norm(g, k, f"{layer.block}.attn_k_norm", HEAD_EPSILON, layer.heads.n_kv)
        y = layer.attention(q, k, v, rope)
        x = add(g, x, layer.norm(y, "attn_norm") if behind else y)
        y = layer.gated_ffn(x if behind else layer.norm(x, "ffn_norm"))
        x = add(g, x, layer.norm(y, "ffn_norm") if behind else y)
    model.logits(x)
