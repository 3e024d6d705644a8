"""granite: Granite 3 and 4 (granitemoe: with experts); llama with factors on embeddings, scores, residuals and logits."""

from __future__ import annotations

from edgellm.arch.blocks.attention import hybrid_heads
from edgellm.arch.blocks.moe import experts_of, has_experts
from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale


def build(keys: Keys, g: Builder) -> None:
    """`rope.scaling.finetuned` switches rotation."""
    build_scaled(keys, g, rotates=keys.flag("rope.scaling.finetuned", default=True))


def build_scaled(
    keys: Keys, g: Builder, *, rotates: bool = True, embedding: float = 1.0, residual: float = 1.0, logit: float = 1.0
) -> None:
    """Pre-norm blocks; the factors come from the file, or are these where it has none; that of scores is in the heads.

    A layer whose number of key heads is 0 has a Mamba 2 layer instead of attention (granitehybrid).
    """
    heads, experts = hybrid_heads(keys), experts_of(keys, normalise=True) if has_experts(keys) else None
    model = Transformer(keys, g, heads=heads, experts=experts)
    sizes = mamba2_sizes(keys) if None in heads else None
    rope = model.rope("norm") if rotates and model.dim_k else None
    residual = keys.optional("residual_scale") or residual
    x = scale(g, model.embed(), keys.optional("embedding_scale") or embedding)
    for layer in model.layers():
        y = layer.norm(x, "attn_norm")
        if layer.attends or sizes is None:
            y = layer.attention(*layer.qkv(y), rope)
        else:
            y = mamba2(g, layer.block, y, sizes, model.eps)
        x = add(g, x, scale(g, y, residual))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, scale(g, layer.moe(y) if experts else layer.gated_ffn(y), residual))
    model.logits(x, 1.0 / (keys.optional("logit_scale") or logit))
