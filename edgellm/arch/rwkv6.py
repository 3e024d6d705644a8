"""rwkv6: RWKV-6 Finch; a state for each head instead of keys and values, and every row mixed with the one before it."""

from __future__ import annotations

from edgellm.arch.blocks.rwkv import head_size, time_mix_6
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import activation, add, columns, matmul, mul, scale
from edgellm.ops.norm import layer_norm
from edgellm.ops.rwkv import token_shift


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm layers of a time mix and a channel mix. After every so many layers rows are halved, as the output matrices of those
    behind them are, lest f16 overflow.
    """
    model = Transformer(keys, g, layer_norm)
    size = head_size(keys)
    period = keys.integer("rescale_every_n_layers", 0, MAX_LAYERS, default=0)
    x = model.norm(model.embed(), "token_embd_norm")
    for layer in model.layers():
        x = add(g, x, time_mix_6(g, keys, layer.block, layer.norm(x, "attn_norm"), size, keys.n_embd // size))
        x = add(g, x, _channel_mix(g, f"{layer.block}.channel_mix", layer.norm(x, "attn_norm_2"), layer.n_ff))
        if period and (layer.index + 1) % period == 0:
            x = scale(g, x, 0.5)
    model.logits(x)


def _channel_mix(g: Builder, name: str, x: Value, n_ff: int) -> Value:
    n = g.n(x)
    mixed = token_shift(g, x, (f"{name}_lerp_k", f"{name}_lerp_r"), 2)
    y = activation(g, "relu_squared", matmul(g, columns(g, mixed, 0, n), f"{name}_key", n_ff))
    gate = activation(g, "sigmoid", matmul(g, columns(g, mixed, n, 2 * n), f"{name}_receptance", n))
    return mul(g, gate, matmul(g, y, f"{name}_value", n))
