"""jina-bert-v2: Jina Embeddings 2 and Jina's first rerankers; BERT's blocks, with biases of scores by distance (ALiBi)."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of
from edgellm.arch.blocks.encoder import typed_embedding
from edgellm.arch.blocks.ffn import fused_gated_ffn, gated_ffn, plain_ffn
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm

MAX_BIAS = 8.0  # of scores; files do not say it


def build(keys: Keys, g: Builder) -> None:
    """Post-norm blocks. Models of code normalise queries and keys, and add a block's input a second time."""
    model = Transformer(keys, g, layer_norm, heads=tuple(replace(head, max_bias=MAX_BIAS) for head in heads_of(keys)))
    x = typed_embedding(model)
    x = model.norm(x, "token_embd_norm")
    for layer in model.layers():
        q, k, v = layer.qkv(x)
        if layer.has("attn_q_norm"):
            q, k = layer.normed_rows(q, k)
        y = add(g, layer.attention(q, k, v), x)
        y = layer.norm(y, "attn_output_norm")
        if layer.has("attn_norm_2"):
            y = layer.norm(add(g, y, x), "attn_norm_2")
        up = g.tensors.get(f"{layer.block}.ffn_up.weight", (layer.n_ff,))
        ffn = gated_ffn if layer.has("ffn_gate") else plain_ffn if up[0] == layer.n_ff else fused_gated_ffn
        x = layer.norm(add(g, ffn(g, layer.block, y, layer.n_ff, "gelu_erf"), y), "layer_output_norm")
    embedding(g, keys, x)
