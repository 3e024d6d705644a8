"""Per-layer embeddings of Gemma 3n and 4: every token has a short row for each layer, of which single rows are read."""

from __future__ import annotations

import math

from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import activation, add, columns, embed, matmul, mul, scale
from edgellm.ops.norm import rms_norm


def per_layer_width(keys: Keys, least: int = 0) -> int:
    """Columns that each layer has of a token's row; 0, where that may be: there are no such rows."""
    return keys.integer("embedding_length_per_layer_input", least, MAX_WIDTH, default=None if least else 0)


def per_layer_inputs(g: Builder, keys: Keys, x: Value, width: int, eps: float) -> Value:
    """The rows (T, layers * width): what the token's id says, and a projection of its embedding x."""
    n = keys.n_layers * width
    looked_up = scale(g, embed(g, "per_layer_token_embd", keys.n_vocab, n), math.sqrt(width))
    projected = scale(g, matmul(g, x, "per_layer_model_proj", n), keys.n_embd**-0.5)
    return scale(g, add(g, rms_norm(g, projected, "per_layer_proj_norm", eps, keys.n_layers), looked_up), math.sqrt(0.5))


def per_layer_output(g: Builder, block: str, x: Value, inputs: Value, layer: int, width: int, eps: float) -> Value:
    """The row that a layer adds to its result x, from its columns of `per_layer_inputs`."""
    gate = activation(g, "gelu", matmul(g, x, f"{block}.inp_gate", width))
    y = mul(g, gate, columns(g, inputs, layer * width, (layer + 1) * width))
    return rms_norm(g, matmul(g, y, f"{block}.proj", g.n(x)), f"{block}.post_norm", eps)
