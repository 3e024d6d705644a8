"""bert: BERT and RoBERTa encoders, such as BGE, E5, MiniLM and XLM-R; rerankers of their kind."""

from __future__ import annotations

from edgellm.arch.blocks.encoder import typed_embedding
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, embed
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Post-norm blocks with learned positions, biases and a plain feed-forward."""
    model = Transformer(keys, g, layer_norm)
    x = typed_embedding(model)
    x = add(g, x, embed(g, "position_embd", keys.context_length, keys.n_embd, "positions"))
    x = model.norm(x, "token_embd_norm")
    for layer in model.layers():
        y = layer.attention(*layer.qkv(x))
        x = layer.norm(add(g, y, x), "attn_output_norm")
        x = layer.norm(add(g, layer.plain_ffn(x, "gelu_erf"), x), "layer_output_norm")
    embedding(g, keys, x)
