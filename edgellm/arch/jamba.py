"""jamba: Jamba 1.5 to 1.7, Jamba Reasoning 3B; Mamba, attention in some layers, experts in others."""

from __future__ import annotations

from edgellm.arch.blocks.attention import hybrid_heads
from edgellm.arch.blocks.moe import experts_of, has_experts
from edgellm.arch.blocks.recurrent import mamba, ssm_sizes
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks that know no positions. The tensors say which layers have experts, and 0 key heads which are recurrent."""
    experts = experts_of(keys, normalise=False) if has_experts(keys) else None
    model, sizes = Transformer(keys, g, heads=hybrid_heads(keys), experts=experts), ssm_sizes(keys)
    x = model.embed()
    for layer in model.layers():
        y = layer.norm(x, "attn_norm")
        if layer.attends:
            y = layer.attention(*layer.qkv(y))
        else:
            y = mamba(g, layer.block, y, sizes, model.eps, norm_weights=True)
        x = add(g, x, y)
        x = add(g, x, layer.any_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
