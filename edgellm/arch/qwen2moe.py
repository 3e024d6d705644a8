"""qwen2moe: Qwen1.5-MoE and Qwen2-57B-A14B; a token's shared expert counts as much as the token says."""

from __future__ import annotations

from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of biased rotated attention and a mixture of experts, whose weights need not sum to 1."""
    model = Transformer(keys, g, experts=experts_of(keys, normalise=False))
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.any_ffn(layer.norm(x, "ffn_norm"), gated=True))
    model.logits(x)
