"""talkie: Talkie 1930; norms without weights, normed embeddings added behind every layer, a factor for each query head."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import attention, heads_of, project_qkv
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scaled_by, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks, whose heads are normed behind their rotation."""
    g.own_scales("attn_output", "ffn_down")
    eps, heads = norm_epsilon(keys), heads_of(keys)
    turn = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = first = rms_norm(g, token_embedding(g, keys), None, eps)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, None, eps))
        q = rms_norm(g, rope(g, q, turn, head.n), f"{block}.attn_q_norm", eps, head.n, own="one")
        k = rms_norm(g, rope(g, k, turn, head.n_kv), None, eps, head.n_kv)
        x = add(g, x, matmul(g, attention(g, head, q, k, v), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, None, eps), n_ff, "silu"))
        x = add(g, x, scaled_by(g, first, f"{block}.layer_output_scale.weight", one=True))
    logits(g, keys, rms_norm(g, select(g, x), None, eps), keys.number("logit_scale"))
