"""Conformers (Gulati et al. 2020), which Gemma 4, LFM2-Audio and others hear with: half steps of feed-forward around attention by
distances and a convolution in time.
"""

from __future__ import annotations

from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.vision._blocks import Norm, linear, norm, optional_norm
from edgellm.graph import Builder, KVSpec, RopeSpec, Value
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import activation, add, add_bias, columns, mul, scale, scaled_by
from edgellm.ops.heads import join
from edgellm.ops.neighbours import depth_conv, neighbours_in_time
from edgellm.ops.rope import angles, rope
from edgellm.ops.vision import project


def half_step(g: Builder, keys: AudioKeys, kind: Norm, x: Value, block: str, number: str, eps: float) -> Value:
    """x and half of what the feed-forward makes of it. `number`: "" for the first of the block, "_1" for the second."""
    y = norm(g, kind, x, f"{block}.ffn_norm{number}", eps)
    n = keys.rows(f"{block}.ffn_up{number}.weight")
    y = activation(g, "silu", linear(g, keys, y, f"{block}.ffn_up{number}", n))
    y = linear(g, keys, y, f"{block}.ffn_down{number}", keys.n_embd)
    return add(g, x, scale(g, optional_norm(g, kind, y, f"{block}.ffn_post_norm{number}", eps), 0.5))


def attend_by_distance(
    g: Builder,
    keys: AudioKeys,
    q: tuple[Value, Value],
    k: Value,
    v: Value,
    name: str,
    spec: RopeSpec,
    factor: float,
    *,
    softcap: float | None = None,
    window: int | None = None,
) -> Value:
    """Attention whose scores are q k + q' W r, with W the matrix `name` and r sines and cosines of the distance, as `spec` turns
    them (Dai et al. 2019, "Transformer-XL"). `window`: rows that are seen, all of them before the query's own; None: all.
    """
    heads, dim = keys.n_heads, keys.head_dim
    away = rope(g, project(g, q[1], name, spec.n_rot, heads), spec, heads)
    k = join(g, k, angles(g, spec), heads, shared=True)
    state = kv_write(g, k, v, KVSpec(heads, dim + spec.n_rot, dim, window, causal=window is not None))
    return attend(g, join(g, q[0], away, heads), state, heads, factor, softcap)


def convolved(
    g: Builder, keys: AudioKeys, kind: Norm, x: Value, block: str, names: tuple[str, str], eps: float, *, causal: bool
) -> Value:
    """x and what the convolution in time makes of it. `names`: of the norms before it and within it; that of layer norms is a batch
    norm, which converters turn into factors and a bias.
    """
    n = keys.n_embd
    y = linear(g, keys, norm(g, kind, x, f"{block}.{names[0]}", eps), f"{block}.conv_pw1", 2 * n)
    y = mul(g, columns(g, y, 0, n), activation(g, "sigmoid", columns(g, y, n, 2 * n)))
    taps = keys.columns(f"{block}.conv_dw.weight")
    y = depth_conv(g, y, neighbours_in_time(g, taps, taps - 1 if causal else taps // 2), f"{block}.conv_dw.weight")
    bias = f"{block}.conv_dw.bias"
    y = add_bias(g, y, bias) if bias in g.tensors else y
    inner = f"{block}.{names[1]}"
    y = optional_norm(g, kind, y, inner, eps) if kind == "rms" else add_bias(g, scaled_by(g, y, f"{inner}.weight"), f"{inner}.bias")
    return add(g, x, linear(g, keys, activation(g, "silu", y), f"{block}.conv_pw2", n))
