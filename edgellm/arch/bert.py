"""bert: BERT and RoBERTa encoders, such as BGE, E5, MiniLM and XLM-R; rerankers of their kind."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import attention, fused_qkv, heads_of, project_qkv
from edgellm.arch.blocks.encoder import typed_embedding
from edgellm.arch.blocks.ends import norm_epsilon
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.pooling import embedding
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, embed, matmul
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks with learned positions, biases and a plain feed-forward."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    x = typed_embedding(g, keys, tensors)
    x = add(g, x, embed(g, "position_embd", keys.context_length, keys.n_embd, "positions"))
    x = layer_norm(g, x, "token_embd_norm", eps)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        project = fused_qkv if f"{block}.attn_qkv.weight" in tensors else project_qkv
        y = matmul(g, attention(g, head, *project(g, head, block, x)), f"{block}.attn_output", keys.n_embd)
        x = layer_norm(g, add(g, y, x), f"{block}.attn_output_norm", eps)
        x = layer_norm(g, add(g, plain_ffn(g, block, x, n_ff, "gelu_erf"), x), f"{block}.layer_output_norm", eps)
    embedding(g, keys, x)
