"""llama: Llama 1-3.3, Mistral, Mixtral, TinyLlama, SmolLM2, distillations; with biases, tied embeddings or rope factors."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, has_experts, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward, or experts."""
    eps, window, heads = norm_epsilon(keys), sliding_window(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    experts = experts_of(keys, normalise=True) if has_experts(keys) else None
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rotated_attention(g, head, q, k, v, rope, window)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        x = add(g, x, moe_ffn(g, block, y, experts) if experts else gated_ffn(g, block, y, n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
