"""apertus: Apertus; every head normalised, a plain feed-forward whose activation has numbers of its own in each layer."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, xielu


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention; the activation's numbers stand under `xielu.*`."""
    model = Transformer(keys, g)
    numbers = [keys.shared_per_layer(f"xielu.{name}") for name in ("alpha_p", "alpha_n", "beta", "eps")]
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        y = layer.matmul(layer.norm(x, "ffn_norm"), "ffn_up", layer.n_ff)
        x = add(g, x, layer.matmul(xielu(g, y, *(each[layer.index] for each in numbers)), "ffn_down", keys.n_embd))
    model.logits(x)
