"""arctic: Snowflake Arctic; experts see what comes into a block, a dense feed-forward what attention makes of it."""

from __future__ import annotations

from edgellm.arch.blocks.ffn import gated_ffn
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs). Dense feed-forwards are as wide as a row."""
    experts = experts_of(keys, normalise=True)
    model = Transformer(keys, g, experts=experts)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        given = x
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, gated_ffn(g, layer.block, layer.norm(x, "ffn_norm"), keys.n_embd, "silu"))
        x = add(g, x, routed_experts(g, layer.block, layer.norm(given, "ffn_norm_exps"), experts))
    model.logits(x)
