"""phi3: Phi-3, Phi-3.5, Phi-4, Phi-4-mini; fused query-key-value and gate-up tensors, longrope, partial rotation."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch._blocks import logits, rope_spec, rotated_attention
from edgellm.graph import Builder, Graph
from edgellm.hparams import Hparams


def build(hparams: Hparams, tensors: Mapping[str, tuple[int, ...]], context: int) -> Graph:
    """Pre-norm blocks. The window of the model makers' definition is kept (llama.cpp ignores it)."""
    g, rope = Builder(tensors), rope_spec(hparams, tensors, context, "neox")
    n_q, n_k = hparams.n_heads * hparams.head_dim_k, hparams.n_kv_heads * hparams.head_dim_k
    n_qkv = n_q + n_k + hparams.n_kv_heads * hparams.head_dim_v
    x = g.embed("token_embd", hparams.n_vocab, hparams.n_embd)
    for layer in range(hparams.n_layers):
        block = f"blk.{layer}"
        qkv = g.matmul(g.rms_norm(x, f"{block}.attn_norm", hparams.eps), f"{block}.attn_qkv", n_qkv)
        q, k, v = g.slice(qkv, 0, n_q), g.slice(qkv, n_q, n_q + n_k), g.slice(qkv, n_q + n_k, n_qkv)
        y = rotated_attention(g, hparams, q, k, v, rope, window=hparams.sliding_window)
        x = g.add(x, g.matmul(y, f"{block}.attn_output", hparams.n_embd))
        both = g.matmul(g.rms_norm(x, f"{block}.ffn_norm", hparams.eps), f"{block}.ffn_up", 2 * hparams.n_ff)
        gate, up = g.slice(both, 0, hparams.n_ff), g.slice(both, hparams.n_ff, 2 * hparams.n_ff)
        y = g.matmul(g.mul(g.activation("silu", gate), up), f"{block}.ffn_down", hparams.n_embd)
        x = g.add(x, y)
    return g.graph(logits(g, hparams, g.rms_norm(g.select(x), "output_norm", hparams.eps)))
