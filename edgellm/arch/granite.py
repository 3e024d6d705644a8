"""granite: Granite 3 and 4 (granitemoe: with experts); llama with factors on embeddings, scores, residuals and logits."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import hybrid_heads, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, has_experts, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """`rope.scaling.finetuned` switches rotation."""
    build_scaled(keys, tensors, g, rotates=keys.flag("rope.scaling.finetuned", default=True))


def build_scaled(
    keys: Keys,
    tensors: Mapping[str, tuple[int, ...]],
    g: Builder,
    *,
    rotates: bool = True,
    embedding: float = 1.0,
    residual: float = 1.0,
    logit: float = 1.0,
) -> None:
    """Pre-norm blocks; the factors come from the file, or are these where it has none; that of scores is in the heads.

    A layer whose number of key heads is 0 has a Mamba 2 layer instead of attention (granitehybrid).
    """
    eps, heads = norm_epsilon(keys), hybrid_heads(keys)
    sizes = mamba2_sizes(keys) if None in heads else None
    dim = next((head.dim_k for head in heads if head), 0)
    rope = rope_spec(keys, tensors, g.context, dim, "norm") if rotates and dim else None
    residual = keys.optional("residual_scale") or residual
    experts = experts_of(keys, normalise=True) if has_experts(keys) else None
    lengths = (0,) * keys.n_layers if experts else ffn_lengths(keys)
    x = scale(g, token_embedding(g, keys), keys.optional("embedding_scale") or embedding)
    for layer, (head, n_ff) in enumerate(zip(heads, lengths, strict=True)):
        block = f"blk.{layer}"
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        if head is not None:
            q, k, v = project_qkv(g, head, block, y)
            y = matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd)
        elif sizes is not None:
            y = mamba2(g, block, y, sizes, eps)
        x = add(g, x, scale(g, y, residual))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        y = moe_ffn(g, block, y, experts) if experts else gated_ffn(g, block, y, n_ff, "silu")
        x = add(g, x, scale(g, y, residual))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps), 1.0 / (keys.optional("logit_scale") or logit))
