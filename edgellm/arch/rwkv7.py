"""rwkv7: RWKV-7 Goose; a state for each head instead of keys and values, and every row mixed with the one before it."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import activation, add, columns, matmul, mul, select
from edgellm.ops.norm import layer_norm
from edgellm.ops.rwkv import token_shift, wkv7

HEAD_EPSILON = 64e-5             # of the norm of what a head reads: the makers have it in their code
RANKS = {"w": "decay", "a": "iclr", "v": "value_residual_mix", "g": "gate"}


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm layers of a time mix and a channel mix. The first layer's values are mixed into those of all others."""
    eps, size = norm_epsilon(keys), keys.integer("wkv.head_size", 1, MAX_WIDTH)
    if keys.n_embd % size:
        raise keys.bad("wkv.head_size", f"{size} does not divide embedding_length {keys.n_embd}")
    for part in "012":
        g.leave_out(f"blk.0.time_mix_v{part}.")      # written for the first layer, too, which has no use for them
    x, first = layer_norm(g, token_embedding(g, keys), "token_embd_norm", eps), None
    for layer, n_ff in enumerate(ffn_lengths(keys)):
        block = f"blk.{layer}"
        y, first = _time_mix(g, keys, f"{block}.time_mix", layer_norm(g, x, f"{block}.attn_norm", eps), size, first)
        x = add(g, x, matmul(g, y, f"{block}.time_mix_output", keys.n_embd))
        y = token_shift(g, layer_norm(g, x, f"{block}.attn_norm_2", eps), f"{block}.channel_mix_lerp_k", 1)
        y = activation(g, "relu_squared", matmul(g, y, f"{block}.channel_mix_key", n_ff))
        x = add(g, x, matmul(g, y, f"{block}.channel_mix_value", keys.n_embd))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))


def _time_mix(g: Builder, keys: Keys, name: str, x: Value, size: int, first: Value | None) -> tuple[Value, Value]:
    """What all heads read, gated, before the output matrix; and the values of the first layer."""
    n, gated = keys.n_embd, any(f"{name}_g{part}.weight" in g.tensors for part in (1, 2))
    mixed = token_shift(g, x, f"{name}_lerp_fused", 5 + gated)
    r, w, k, v, a, *gate = (columns(g, mixed, i * n, (i + 1) * n) for i in range(5 + gated))

    def short(part: str, row: Value, act: str | None = None, *, biased: bool = True) -> Value:
        """Two products through a short row."""
        rank = keys.integer(f"attention.{RANKS[part]}_lora_rank", 1, MAX_WIDTH)
        low = matmul(g, row, f"{name}_{part}1", rank)
        low = low if act is None else activation(g, act, low)
        return matmul(g, low, f"{name}_{part}2", n, bias=f"{name}_{part}0.weight" if biased else None)

    value = matmul(g, v, f"{name}_value", n)
    y = wkv7(g, matmul(g, r, f"{name}_receptance", n), short("w", w, "tanh"), matmul(g, k, f"{name}_key", n), value, short("a", a),
             name, heads=n // size, eps=HEAD_EPSILON, first=None if first is None else (first, short("v", v)))
    if gated:
        y = mul(g, y, short("g", gate[0], "sigmoid", biased=False))
    return y, value if first is None else first
