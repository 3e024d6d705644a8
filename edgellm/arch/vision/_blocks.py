"""Parts that image encoders share: patches, transformer blocks, and the two products after them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder, KVSpec, RopeSpec, Value
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import activation, add, columns, matmul, mul, scaled_by
from edgellm.ops.norm import layer_norm, rms_norm
from edgellm.ops.rope import rope
from edgellm.ops.vision import patch_conv, pixels

Norm = Literal["layer", "rms"]
AfterLayer = Callable[[int, Value], None]


def patches(g: Builder, keys: VisionKeys, *, still: bool = False) -> Value:
    """The patch convolution (T, n_embd). `still`: over two equal frames, as of a video that stands still."""
    x, n = pixels(g, keys.patch), keys.n_embd
    bias = "v.patch_embd.bias" if "v.patch_embd.bias" in g.tensors else None
    y = patch_conv(g, x, "v.patch_embd.weight", n, bias)
    return add(g, y, patch_conv(g, x, "v.patch_embd.weight.1", n)) if still else y


def rope_2d(keys: VisionKeys, base: float, *, interleaved: bool = False) -> RopeSpec:
    """The rotation of heads by their patch's row and column: half of the pairs turn by each.

    Both halves have the same frequencies; `interleaved`: of neighbouring dims, the even frequencies for rows and the odd ones for
    columns (Pixtral).
    """
    if keys.head_dim % 4:
        raise keys.bad("attention.head_count", f"heads of {keys.head_dim} dims cannot turn by rows and columns")
    quarter = keys.head_dim // 4
    powers = [2 * i for i in range(quarter)]
    across = [power + 1 for power in powers] if interleaved else powers
    return RopeSpec(
        keys.head_dim, "norm" if interleaved else "neox", base, axes=(0,) * quarter + (1,) * quarter, powers=(*powers, *across)
    )


def norm(g: Builder, kind: Norm, x: Value, name: str, eps: float, groups: int = 1) -> Value:
    return layer_norm(g, x, name, eps, groups) if kind == "layer" else rms_norm(g, x, name, eps, groups)


def optional_norm(g: Builder, kind: Norm, x: Value, name: str, eps: float) -> Value:
    """The norm `name`, where the file has it."""
    return norm(g, kind, x, name, eps) if f"{name}.weight" in g.tensors else x


def blocks(
    g: Builder,
    keys: VisionKeys,
    x: Value,
    kind: Norm = "layer",
    *,
    rotation: RopeSpec | None = None,
    windowed: Collection[int] = (),
    n_layers: int | None = None,
    after: AfterLayer | None = None,
) -> Value:
    """Pre-norm blocks of attention both ways and feed-forward. `windowed`: layers whose patches see their window only.

    `n_layers`: fewer than the file has. `after`: called with each layer's number and its output.
    """
    heads, dim = keys.n_heads, keys.head_dim
    for layer in range(keys.n_layers if n_layers is None else n_layers):
        block = f"v.blk.{layer}"
        q, k, v = _projected(g, keys, block, norm(g, kind, x, f"{block}.ln1", keys.eps))
        if f"{block}.attn_q_norm.weight" in g.tensors:
            q = rms_norm(g, q, f"{block}.attn_q_norm", keys.eps, heads)
            k = rms_norm(g, k, f"{block}.attn_k_norm", keys.eps, heads)
        if rotation is not None:
            q, k = rope(g, q, rotation, heads), rope(g, k, rotation, heads)
        state = kv_write(g, k, v, KVSpec(heads, dim, dim, causal=False, chunked=layer in windowed))
        y = matmul(g, attend(g, q, state, heads, dim**-0.5), f"{block}.attn_out", keys.n_embd)
        x = add(g, x, _scaled(g, y, f"{block}.ls1"))
        y = _feed_forward(g, keys, block, norm(g, kind, x, f"{block}.ln2", keys.eps))
        x = add(g, x, _scaled(g, y, f"{block}.ls2"))
        if after is not None:
            after(layer, x)
    return x


def _projected(g: Builder, keys: VisionKeys, block: str, x: Value) -> tuple[Value, Value, Value]:
    n = keys.n_embd
    if f"{block}.attn_qkv.weight" in g.tensors:
        qkv = matmul(g, x, f"{block}.attn_qkv", 3 * n)
        return columns(g, qkv, 0, n), columns(g, qkv, n, 2 * n), columns(g, qkv, 2 * n, 3 * n)
    return matmul(g, x, f"{block}.attn_q", n), matmul(g, x, f"{block}.attn_k", n), matmul(g, x, f"{block}.attn_v", n)


def _scaled(g: Builder, x: Value, name: str) -> Value:
    """x times the layer scale `name`, where the file has one."""
    return scaled_by(g, x, f"{name}.weight") if f"{name}.weight" in g.tensors else x


def _feed_forward(g: Builder, keys: VisionKeys, block: str, x: Value) -> Value:
    into, out = ("ffn_down", "ffn_up") if keys.swapped_ffn else ("ffn_up", "ffn_down")
    up = matmul(g, x, f"{block}.{into}", keys.n_ff)
    if f"{block}.ffn_gate.weight" in g.tensors:
        up = mul(g, activation(g, keys.activation, matmul(g, x, f"{block}.ffn_gate", keys.n_ff)), up)
    else:
        up = activation(g, keys.activation, up)
    return matmul(g, up, f"{block}.{out}", keys.n_embd)


def two_products(g: Builder, x: Value, first: str, second: str, n: int, n_out: int, act: str = "gelu_erf") -> Value:
    """second(act(first(x)))."""
    return matmul(g, activation(g, act, matmul(g, x, first, n)), second, n_out)
