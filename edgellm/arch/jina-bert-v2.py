"""jina-bert-v2: Jina Embeddings 2 and Jina's first rerankers; BERT's blocks, with biases of scores by distance (ALiBi)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import attention, heads_of, project_qkv
from edgellm.arch.blocks.encoder import typed_embedding
from edgellm.arch.blocks.ends import norm_epsilon
from edgellm.arch.blocks.ffn import ffn_lengths, fused_gated_ffn, gated_ffn, plain_ffn
from edgellm.arch.blocks.pooling import embedding
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul
from edgellm.ops.norm import layer_norm

MAX_BIAS = 8.0  # of scores; files do not say it


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks. Models of code normalise queries and keys, and add a block's input a second time."""
    eps, heads = norm_epsilon(keys), tuple(replace(head, max_bias=MAX_BIAS) for head in heads_of(keys))
    x = typed_embedding(g, keys, tensors)
    x = layer_norm(g, x, "token_embd_norm", eps)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, x)
        if f"{block}.attn_q_norm.weight" in tensors:
            q, k = layer_norm(g, q, f"{block}.attn_q_norm", eps), layer_norm(g, k, f"{block}.attn_k_norm", eps)
        y = add(g, matmul(g, attention(g, head, q, k, v), f"{block}.attn_output", keys.n_embd), x)
        y = layer_norm(g, y, f"{block}.attn_output_norm", eps)
        if f"{block}.attn_norm_2.weight" in tensors:
            y = layer_norm(g, add(g, y, x), f"{block}.attn_norm_2", eps)
        up = tensors.get(f"{block}.ffn_up.weight", (n_ff,))
        ffn = gated_ffn if f"{block}.ffn_gate.weight" in tensors else plain_ffn if up[0] == n_ff else fused_gated_ffn
        x = layer_norm(g, add(g, ffn(g, block, y, n_ff, "gelu_erf"), y), f"{block}.layer_output_norm", eps)
    embedding(g, keys, x)
