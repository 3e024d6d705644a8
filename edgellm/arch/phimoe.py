"""phimoe: Phi-3.5-MoE and Phi-mini-MoE; layer norms, two experts each of which weighs about 1 (SparseMixer)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention and experts, with biases. The makers' layer norms, where llama.cpp has RMS norms."""
    eps, heads, window = norm_epsilon(keys), heads_of(keys), sliding_window(keys)
    experts = replace(experts_of(keys, normalise=False), gating="sparsemixer", normalise=False)
    if experts.k != 2:
        raise keys.bad("expert_used_count", f"is {experts.k}, and SparseMixer takes 2")
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, layer_norm(g, x, f"{block}.attn_norm", eps))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope, window), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, routed_experts(g, block, layer_norm(g, x, f"{block}.ffn_norm", eps), experts))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
