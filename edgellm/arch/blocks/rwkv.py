"""The time mixes of RWKV-6 and RWKV-7, and of models that have them in the place of attention."""

from __future__ import annotations

from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import activation, columns, matmul, mul
from edgellm.ops.heads import head_matmul
from edgellm.ops.norm import layer_norm
from edgellm.ops.rwkv import token_shift, wkv6, wkv7

HEAD_EPSILON = 64e-5  # of the norm of what a head reads: the makers have it in their code
RANKS_7 = {"w": "decay", "a": "iclr", "v": "value_residual_mix", "g": "gate"}
PARTS_6 = "wkvrg"  # of rows that are mixed with those before them, in the order of files


def head_size(keys: Keys) -> int:
    """Raises BadHParam where the width is not made of whole heads."""
    size = keys.integer("wkv.head_size", 1, MAX_WIDTH)
    if keys.n_embd % size:
        raise keys.bad("wkv.head_size", f"{size} does not divide embedding_length {keys.n_embd}")
    return size


def time_mix_6(g: Builder, keys: Keys, block: str, x: Value, size: int, kv_heads: int, *, transformed: bool = False) -> Value:
    """Mixes each row with the one before it, in a ratio that depends on both. `transformed`: the form of converted transformers."""
    n, name = keys.n_embd, f"{block}.time_mix"
    extra = keys.integer("time_mix_extra_dim", 1, MAX_WIDTH)
    low = activation(g, "tanh", matmul(g, token_shift(g, x, f"{name}_lerp_x", 1), f"{name}_w1", 5 * extra))
    apart = [f"{name}_lerp_{part}" for part in PARTS_6]  # as older files have them
    names = apart if f"{apart[0]}.weight" in g.tensors else f"{name}_lerp_fused"
    mixed = token_shift(g, x, names, 5, head_matmul(g, low, f"{name}_w2", 5, n))
    w, k, v, r, gate = (columns(g, mixed, i * n, (i + 1) * n) for i in range(5))
    rank = keys.integer("time_decay_extra_dim", 1, MAX_WIDTH)
    w = activation(g, "tanh", matmul(g, w, f"{name}_decay_w1", rank))
    w = matmul(g, w, f"{name}_decay_w2", n, bias=f"{name}_decay.weight")
    y = wkv6(
        g,
        matmul(g, r, f"{name}_receptance", n),
        w,
        matmul(g, k, f"{name}_key", kv_heads * size),
        matmul(g, v, f"{name}_value", kv_heads * size),
        heads=n // size,
        first=None if transformed else f"{name}_first",
    )
    if not transformed:
        y = layer_norm(g, y, f"{name}_ln", HEAD_EPSILON, n // size, flat=True)
    gate = activation(g, "sigmoid" if transformed else "silu", matmul(g, gate, f"{name}_gate", n))
    return matmul(g, mul(g, gate, y), f"{name}_output", n)


def time_mix_7(g: Builder, keys: Keys, block: str, x: Value, size: int, first: Value | None) -> tuple[Value, Value]:
    """The gated output of all heads through the output matrix, and the values of the first layer."""
    n, name = keys.n_embd, f"{block}.time_mix"
    gated = any(f"{name}_g{part}.weight" in g.tensors for part in (1, 2))
    mixed = token_shift(g, x, f"{name}_lerp_fused", 5 + gated)
    r, w, k, v, a, *gate = (columns(g, mixed, i * n, (i + 1) * n) for i in range(5 + gated))

    def short(part: str, row: Value, act: str | None = None, *, biased: bool = True) -> Value:
        """Two products through a short row."""
        rank = keys.integer(f"attention.{RANKS_7[part]}_lora_rank", 1, MAX_WIDTH)
        low = matmul(g, row, f"{name}_{part}1", rank)
        low = low if act is None else activation(g, act, low)
        return matmul(g, low, f"{name}_{part}2", n, bias=f"{name}_{part}0.weight" if biased else None)

    value = matmul(g, v, f"{name}_value", n)
    y = wkv7(
        g,
        matmul(g, r, f"{name}_receptance", n),
        short("w", w, "tanh"),
        matmul(g, k, f"{name}_key", n),
        value,
        short("a", a),
        name,
        heads=n // size,
        eps=HEAD_EPSILON,
        first=None if first is None else (first, short("v", v)),
    )
    if gated:
        y = mul(g, y, short("g", gate[0], "sigmoid", biased=False))
    return matmul(g, y, f"{name}_output", n), value if first is None else first


def without_first_values(g: Builder) -> None:
    """Values of RWKV-7's first layer are mixed with none, but files have the tensors for it."""
    for part in "012":
        g.leave_out(f"blk.0.time_mix_v{part}.")
