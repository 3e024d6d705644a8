"""llama: Llama 1-3.3, Mistral, TinyLlama, SmolLM2, distillations; with biases, tied embeddings or rope factors."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch._blocks import gated_ffn, logits, project_qkv, rope_spec, rotated_attention
from edgellm.graph import Builder, Graph
from edgellm.hparams import Hparams


def build(hparams: Hparams, tensors: Mapping[str, tuple[int, ...]], context: int) -> Graph:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    g, rope = Builder(tensors), rope_spec(hparams, tensors, context, "norm")
    x = g.embed("token_embd", hparams.n_vocab, hparams.n_embd)
    for layer in range(hparams.n_layers):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, hparams, block, g.rms_norm(x, f"{block}.attn_norm", hparams.eps))
        y = rotated_attention(g, hparams, q, k, v, rope, window=hparams.sliding_window)
        x = g.add(x, g.matmul(y, f"{block}.attn_output", hparams.n_embd))
        y = gated_ffn(g, hparams, block, g.rms_norm(x, f"{block}.ffn_norm", hparams.eps), "silu")
        x = g.add(x, y)
    return g.graph(logits(g, hparams, g.rms_norm(g.select(x), "output_norm", hparams.eps)))
