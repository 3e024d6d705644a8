"""RWKV-7 as its paper defines it (Peng et al. 2025, section 4), token by token in float64, as transformers has no class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def normed(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


def rms_normed(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x * x) + eps) * weight


class Layer:
    """One layer's weights, and what it keeps of the tokens before."""

    def __init__(self, arrays: Mapping[str, Array], number: int, head: int) -> None:
        self.w = {
            name.removeprefix(f"blk.{number}.").removesuffix(".weight"): array
            for name, array in arrays.items()
            if name.startswith(f"blk.{number}.")
        }
        n = len(self.w["attn_norm"])
        self.number, self.heads, self.head = number, n // head, head
        self.seen, self.seen_by_channels, self.state = np.zeros(n), np.zeros(n), np.zeros((n // head, head, head))

    def time_mix(self, x: Array, first: Array | None) -> tuple[Array, Array]:
        w = {name.removeprefix("time_mix_"): array for name, array in self.w.items()}
        xr, xw, xk, xv, xa, *xg = (x + mix * (self.seen - x) for mix in w["lerp_fused"].reshape(-1, len(x)))
        self.seen = x
        r, k, v = w["receptance"] @ xr, w["key"] @ xk, w["value"] @ xv
        decay = np.exp(-np.exp(-0.5) * sigmoid(w["w0"] + w["w2"] @ np.tanh(w["w1"] @ xw)))
        if first is None:
            first = v
        else:
            v = v + (first - v) * sigmoid(w["v0"] + w["v2"] @ (w["v1"] @ xv))
        rate = sigmoid(w["a0"] + w["a2"] @ (w["a1"] @ xa))
        gate = w["g2"] @ sigmoid(w["g1"] @ xg[0]) if xg else np.ones_like(x)
        removal = k * w["k_k"]
        k = k + k * (rate - 1.0) * w["k_a"]
        out = np.empty((self.heads, self.head))
        for h in range(self.heads):
            own = slice(h * self.head, (h + 1) * self.head)
            kk = removal[own] / max(np.linalg.norm(removal[own]), 1e-12)
            transition = np.diag(decay[own]) - np.outer(kk, rate[own] * kk)
            self.state[h] = self.state[h] @ transition + np.outer(v[own], k[own])
            out[h] = self.state[h] @ r[own]
        y = normed(out, w["ln"].reshape(out.shape), w["ln.bias"].reshape(out.shape), 64e-5) if "ln" in w else out
        y = y + (r * k * w["r_k"]).reshape(out.shape).sum(-1, keepdims=True) * v.reshape(out.shape)
        return w["output"] @ (y.reshape(-1) * gate), first

    def channel_mix(self, x: Array) -> Array:
        mixed = x + self.w["channel_mix_lerp_k"] * (self.seen_by_channels - x)
        self.seen_by_channels = x
        return self.w["channel_mix_value"] @ np.square(np.maximum(self.w["channel_mix_key"] @ mixed, 0.0))

    def feed_forward(self, x: Array) -> Array:
        """A transformer's."""
        gate = self.w["ffn_gate"] @ x
        y: Array = self.w["ffn_down"] @ (gate * sigmoid(gate) * (self.w["ffn_up"] @ x))
        return y

    def norm(self, x: Array, name: str, eps: float) -> Array:
        return normed(x, self.w[name], self.w[f"{name}.bias"], eps)


def logits(arrays: Mapping[str, npt.NDArray[Any]], ids: npt.NDArray[np.int64], head: int, eps: float) -> Array:
    """Logits (T, n_vocab) of a file's tensors, by GGUF name."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    n_layers = 1 + max(int(name.split(".")[1]) for name in wide if name.startswith("blk."))
    layers, rows = [Layer(wide, number, head) for number in range(n_layers)], []
    for token in ids:
        x = normed(wide["token_embd.weight"][token], wide["token_embd_norm.weight"], wide["token_embd_norm.bias"], eps)
        first: Array | None = None
        for layer in layers:
            y, first = layer.time_mix(layer.norm(x, "attn_norm", eps), first)
            x = x + y
            x = x + layer.channel_mix(layer.norm(x, "attn_norm_2", eps))
        rows.append(wide["output.weight"] @ normed(x, wide["output_norm.weight"], wide["output_norm.bias"], eps))
    return np.stack(rows)


def transformed_logits(arrays: Mapping[str, npt.NDArray[Any]], ids: npt.NDArray[np.int64], head: int, eps: float) -> Array:
    """The same of ARWKV-7, whose layers were a transformer's."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    n_layers = 1 + max(int(name.split(".")[1]) for name in wide if name.startswith("blk."))
    layers, rows = [Layer(wide, number, head) for number in range(n_layers)], []
    for token in ids:
        x, first = wide["token_embd.weight"][token], None
        for layer in layers:
            y, first = layer.time_mix(rms_normed(x, layer.w["attn_norm"], eps), first)
            x = x + y
            x = x + layer.feed_forward(rms_normed(x, layer.w["ffn_norm"], eps))
        rows.append(wide["output.weight"] @ rms_normed(x, wide["output_norm.weight"], eps))
    return np.stack(rows)
