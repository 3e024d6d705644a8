"""qwen3: Qwen3 dense; every head's query and key is normalised before its rotation."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch._blocks import gated_ffn, logits, project_qkv, rope_spec, rotated_attention
from edgellm.graph import Builder, Graph
from edgellm.hparams import Hparams


def build(hparams: Hparams, tensors: Mapping[str, tuple[int, ...]], context: int) -> Graph:
    """Pre-norm blocks with one norm weight (head_dim,) for all query heads and one for all key heads."""
    g, rope = Builder(tensors), rope_spec(hparams, tensors, context, "neox")
    x = g.embed("token_embd", hparams.n_vocab, hparams.n_embd)
    for layer in range(hparams.n_layers):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, hparams, block, g.rms_norm(x, f"{block}.attn_norm", hparams.eps))
        q = g.rms_norm(q, f"{block}.attn_q_norm", hparams.eps, hparams.n_heads)
        k = g.rms_norm(k, f"{block}.attn_k_norm", hparams.eps, hparams.n_kv_heads)
        y = rotated_attention(g, hparams, q, k, v, rope)
        x = g.add(x, g.matmul(y, f"{block}.attn_output", hparams.n_embd))
        y = gated_ffn(g, hparams, block, g.rms_norm(x, f"{block}.ffn_norm", hparams.eps), "silu")
        x = g.add(x, y)
    return g.graph(logits(g, hparams, g.rms_norm(g.select(x), "output_norm", hparams.eps)))
