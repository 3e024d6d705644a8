"""qwen2: Qwen2, Qwen2.5, Coder and distillations; llama with biases on queries, keys and values, and rotated halves."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch._blocks import gated_ffn, logits, project_qkv, rope_spec, rotated_attention
from edgellm.graph import Builder, Graph
from edgellm.hparams import Hparams


def build(hparams: Hparams, tensors: Mapping[str, tuple[int, ...]], context: int) -> Graph:
    """Pre-norm blocks; biases come from the file. No released Qwen2 uses the sliding window that its files mention."""
    g, rope = Builder(tensors), rope_spec(hparams, tensors, context, "neox")
    x = g.embed("token_embd", hparams.n_vocab, hparams.n_embd)
    for layer in range(hparams.n_layers):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, hparams, block, g.rms_norm(x, f"{block}.attn_norm", hparams.eps))
        y = rotated_attention(g, hparams, q, k, v, rope)
        x = g.add(x, g.matmul(y, f"{block}.attn_output", hparams.n_embd))
        y = gated_ffn(g, hparams, block, g.rms_norm(x, f"{block}.ffn_norm", hparams.eps), "silu")
        x = g.add(x, y)
    return g.graph(logits(g, hparams, g.rms_norm(g.select(x), "output_norm", hparams.eps)))
