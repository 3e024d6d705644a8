"""chameleon: Chameleon's language model; each head has a layer norm of its own, blocks of the larger one norm what comes out."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm, rms_norm

HEAD_EPSILON = 1e-5  # of the norms of heads: the makers have it in their code


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of rotated attention (neighbouring pairs) and a gated feed-forward, normed before (7B) or behind (30B)."""
    eps, heads, behind = norm_epsilon(keys), heads_of(keys), keys.flag("swin_norm", default=False)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        norms = [f"{block}.{part}_norm" for part in ("attn", "ffn")]
        q, k, v = project_qkv(g, head, block, x if behind else rms_norm(g, x, norms[0], eps))
        q = layer_norm(g, q, f"{block}.attn_q_norm", HEAD_EPSILON, head.n)
        k = layer_norm(g, k, f"{block}.attn_k_norm", HEAD_EPSILON, head.n_kv)
        y = matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd)
        x = add(g, x, rms_norm(g, y, norms[0], eps) if behind else y)
        y = gated_ffn(g, block, x if behind else rms_norm(g, x, norms[1], eps), n_ff, "silu")
        x = add(g, x, rms_norm(g, y, norms[1], eps) if behind else y)
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
