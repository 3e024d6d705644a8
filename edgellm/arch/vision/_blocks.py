"""Parts that image encoders share: patches, transformer blocks, and the two products after them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Literal, TypedDict, Unpack

from edgellm.arch.vision._keys import EncoderKeys, VisionKeys
from edgellm.graph import Builder, KVSpec, RopeSpec, Value
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import activation, add, bounded, columns, matmul, mul, scaled_by
from edgellm.ops.norm import layer_norm, rms_norm
from edgellm.ops.rope import rope
from edgellm.ops.vision import ClassPlace, Resize, grid_embed, patch_conv, pixels

Norm = Literal["layer", "rms"]
Gelu = Literal["gelu", "gelu_erf", "gelu_quick", "silu"]
Style = Literal["neox", "norm", "axial"]
AfterLayer = Callable[[int, Value], None]


class BlockOptions(TypedDict, total=False):
    """Those of `blocks`."""

    rotation: RopeSpec | None
    windowed: Collection[int]
    first: int
    n_layers: int | None
    after: AfterLayer | None
    scale: float | None
    values_normed: bool
    gelu: Gelu
    gate_limit: float


def patches(g: Builder, keys: VisionKeys, *, still: bool = False) -> Value:
    """The patch convolution (T, n_embd). `still`: over two equal frames, as of a video that stands still."""
    x, n = pixels(g, keys.patch), keys.n_embd
    bias = "v.patch_embd.bias" if "v.patch_embd.bias" in g.tensors else None
    y = patch_conv(g, x, "v.patch_embd.weight", n, bias)
    return add(g, y, patch_conv(g, x, "v.patch_embd.weight.1", n)) if still else y


def positions(g: Builder, keys: VisionKeys, resize: Resize, class_at: ClassPlace | None = None) -> Value:
    """Learned positions of a square grid; see `grid_embed`."""
    rows = keys.grid("v.position_embd.weight", int(class_at is not None))
    return grid_embed(g, "v.position_embd", rows, keys.n_embd, resize, class_at=class_at)


def placed(g: Builder, keys: VisionKeys, resize: Resize, class_at: ClassPlace | None = None, *, still: bool = False) -> Value:
    """Patches with learned positions."""
    return add(g, patches(g, keys, still=still), positions(g, keys, resize, class_at))


def rope_2d(
    keys: VisionKeys,
    base: float,
    style: Literal["neox", "norm", "axial"] = "neox",
    *,
    interleaved: bool = False,
    alternating: bool = False,
) -> RopeSpec:
    """The rotation of heads by their patch's row and column: half of the pairs turn by each.

    "neox": by rows, then columns (Qwen); "norm" and "axial": by columns, then rows. Both halves have the same frequencies;
    `interleaved`: the even frequencies for rows and the odd ones for columns (Pixtral). `alternating`: a pair of each in turn.
    """
    if keys.head_dim % 4:
        raise keys.bad("attention.head_count", f"heads of {keys.head_dim} dims cannot turn by rows and columns")
    quarter = keys.head_dim // 4
    powers = [2 * i for i in range(quarter)]
    across = [power + 1 for power in powers] if interleaved else powers
    first = 0 if style == "neox" or interleaved else 1
    if alternating:
        return RopeSpec(
            keys.head_dim, style, base, axes=(first, 1 - first) * quarter, powers=tuple(p for p in powers for _ in "xy")
        )
    axes = (first,) * quarter + (1 - first,) * quarter
    return RopeSpec(keys.head_dim, style, base, axes=axes, powers=(*powers, *across))


def norm(g: Builder, kind: Norm, x: Value, name: str, eps: float, groups: int = 1) -> Value:
    return layer_norm(g, x, name, eps, groups) if kind == "layer" else rms_norm(g, x, name, eps, groups)


def optional_norm(g: Builder, kind: Norm, x: Value, name: str, eps: float) -> Value:
    """The norm `name`, where the file has it."""
    return norm(g, kind, x, name, eps) if f"{name}.weight" in g.tensors else x


def encoded(g: Builder, keys: VisionKeys, x: Value, kind: Norm = "layer", **options: Unpack[BlockOptions]) -> Value:
    """The blocks, between the norms that a file may have before and after them."""
    x = blocks(g, keys, optional_norm(g, kind, x, "v.pre_ln", keys.eps), kind, **options)
    return optional_norm(g, kind, x, "v.post_ln", keys.eps)


def blocks(
    g: Builder,
    keys: EncoderKeys,
    x: Value,
    kind: Norm = "layer",
    *,
    rotation: RopeSpec | None = None,
    windowed: Collection[int] = (),
    first: int = 0,
    n_layers: int | None = None,
    after: AfterLayer | None = None,
    scale: float | None = None,
    values_normed: bool = False,
    gelu: Gelu = "gelu",
    gate_limit: float = math.inf,
) -> Value:
    """Pre-norm blocks of attention both ways and feed-forward. `windowed`: layers whose patches see their window only.

    `first`, `n_layers`: the first layer, and how many come before the end, where that is not all. `after`: called with each layer's
    number and its output. `scale`: of scores, else that of the heads' length. `values_normed`: values are divided by their root
    mean square. `gelu`: what files that say `use_gelu` mean. `gate_limit`: see `gated`.
    """
    heads, own, dim = keys.n_heads, keys.n_kv_heads, keys.head_dim
    act = gelu if keys.activation == "gelu" else keys.activation
    ln2 = "ln2" if f"{keys.prefix}.blk.0.ln2.weight" in g.tensors else "attn_post_norm"  # of Llama 4 in files of late converters
    for layer in range(first, keys.n_layers if n_layers is None else n_layers):
        block = f"{keys.prefix}.blk.{layer}"
        q, k, v = projected(g, keys, block, norm(g, kind, x, f"{block}.ln1", keys.eps))
        q = _of_heads(g, keys, kind, q, f"{block}.attn_q_norm", heads)
        k = _of_heads(g, keys, kind, k, f"{block}.attn_k_norm", own)
        if rotation is not None:
            q, k = rope(g, q, rotation, heads), rope(g, k, rotation, own)
        if values_normed:
            v = rms_norm(g, v, None, keys.eps, own)
        state = kv_write(g, k, v, KVSpec(own, dim, dim, causal=False, chunked=layer in windowed))
        y = linear(g, keys, attend(g, q, state, heads, dim**-0.5 if scale is None else scale), f"{block}.attn_out", keys.n_embd)
        y = _scaled(g, y, f"{block}.ls1")
        x = add(g, x, y if ln2 == "attn_post_norm" else optional_norm(g, kind, y, f"{block}.attn_post_norm", keys.eps))
        y = _feed_forward(g, keys, block, norm(g, kind, x, f"{block}.{ln2}", keys.eps), act, gate_limit)
        x = add(g, x, _scaled(g, optional_norm(g, kind, y, f"{block}.ffn_post_norm", keys.eps), f"{block}.ls2"))
        x = _scaled(g, x, f"{block}.out_scale")
        if after is not None:
            after(layer, x)
    return x


def linear(g: Builder, keys: EncoderKeys, x: Value, name: str, n: int) -> Value:
    """A product, whose input and output stay within bounds where the file has some (Gemma 4)."""
    bounds = [
        (keys.scalar(f"{name}.{end}_min", -math.inf), keys.scalar(f"{name}.{end}_max", math.inf)) for end in ("input", "output")
    ]
    g.leave_out(f"{name}.input_m")
    g.leave_out(f"{name}.output_m")
    return bounded(g, matmul(g, bounded(g, x, *bounds[0]), name, n), *bounds[1])


def _of_heads(g: Builder, keys: EncoderKeys, kind: Norm, x: Value, name: str, heads: int) -> Value:
    """The norm of queries or keys, where the file has one: of each head, or of whole rows."""
    shape = g.tensors.get(f"{name}.weight")
    if shape is None:
        return x
    if shape == (keys.head_dim,) and heads > 1 and kind == "rms":
        return rms_norm(g, x, name, keys.eps, heads)
    return norm(g, kind, x, name, keys.eps) if shape == (g.n(x),) else rms_norm(g, x, name, keys.eps, heads)


def projected(g: Builder, keys: EncoderKeys, block: str, x: Value) -> tuple[Value, Value, Value]:
    """Queries, keys and values."""
    n, own = keys.n_heads * keys.head_dim, keys.n_kv_heads * keys.head_dim
    if f"{block}.attn_qkv.weight" in g.tensors:
        qkv = matmul(g, x, f"{block}.attn_qkv", n + 2 * own)
        return columns(g, qkv, 0, n), columns(g, qkv, n, n + own), columns(g, qkv, n + own, n + 2 * own)
    q, k, v = (linear(g, keys, x, f"{block}.attn_{name}", width) for name, width in (("q", n), ("k", own), ("v", own)))
    return q, k, v


def _scaled(g: Builder, x: Value, name: str) -> Value:
    """x times the layer scale `name`, where the file has one."""
    return scaled_by(g, x, f"{name}.weight") if f"{name}.weight" in g.tensors else x


def _feed_forward(g: Builder, keys: EncoderKeys, block: str, x: Value, act: str, limit: float) -> Value:
    into, out = ("ffn_down", "ffn_up") if keys.swapped_ffn else ("ffn_up", "ffn_down")
    up = linear(g, keys, x, f"{block}.{into}", keys.n_ff)
    if f"{block}.ffn_gate.weight" in g.tensors:
        up = gated(g, act, linear(g, keys, x, f"{block}.ffn_gate", keys.n_ff), up, limit)
    else:
        up = activation(g, act, up)
    return linear(g, keys, up, f"{block}.{out}", keys.n_embd)


def gated(g: Builder, act: str, gate: Value, up: Value, limit: float = math.inf) -> Value:
    """act(gate) * up, with gate at most `limit` and up within +-`limit`."""
    return mul(g, activation(g, act, bounded(g, gate, -math.inf, limit)), bounded(g, up, -limit, limit))


def two_products(g: Builder, keys: EncoderKeys, x: Value, first: str, second: str, act: str = "gelu_erf") -> Value:
    """second(act(first(x))): rows of the model's width."""
    return matmul(g, activation(g, act, matmul(g, x, first, keys.rows(f"{first}.weight"))), second, keys.n_out)
