"""gpt2: GPT-2 and its fine-tunes; learned positions, so the context cannot slide, and biases everywhere."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch._blocks import logits
from edgellm.graph import Builder, Graph, LayerMemory
from edgellm.hparams import Hparams


def build(hparams: Hparams, tensors: Mapping[str, tuple[int, ...]], context: int) -> Graph:
    """Pre-norm blocks with layer norms, one fused query-key-value tensor and a plain gelu feed-forward."""
    g = Builder(tensors)
    n_q, n_k = hparams.n_heads * hparams.head_dim_k, hparams.n_kv_heads * hparams.head_dim_k
    n_qkv = n_q + n_k + hparams.n_kv_heads * hparams.head_dim_v
    memory = LayerMemory(hparams.n_kv_heads, hparams.head_dim_k, hparams.head_dim_v)
    x = g.embed("token_embd", hparams.n_vocab, hparams.n_embd)
    x = g.add(x, g.embed("position_embd", hparams.context_length, hparams.n_embd, "positions"))
    for layer in range(hparams.n_layers):
        block = f"blk.{layer}"
        qkv = g.matmul(g.layer_norm(x, f"{block}.attn_norm", hparams.eps), f"{block}.attn_qkv", n_qkv)
        q, k, v = g.slice(qkv, 0, n_q), g.slice(qkv, n_q, n_q + n_k), g.slice(qkv, n_q + n_k, n_qkv)
        y = g.attention(q, q, k, v, memory, hparams.n_heads, hparams.head_dim_k**-0.5)
        x = g.add(x, g.matmul(y, f"{block}.attn_output", hparams.n_embd))
        y = g.matmul(g.layer_norm(x, f"{block}.ffn_norm", hparams.eps), f"{block}.ffn_up", hparams.n_ff)
        x = g.add(x, g.matmul(g.activation("gelu", y), f"{block}.ffn_down", hparams.n_embd))
    return g.graph(logits(g, hparams, g.layer_norm(g.select(x), "output_norm", hparams.eps)))
