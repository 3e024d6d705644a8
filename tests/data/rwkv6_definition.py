"""RWKV-6 as its paper defines it (Peng et al. 2024, section 4), token by token in float64, as transformers has no class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from rwkv7_definition import Array, normed, rms_normed, sigmoid

PARTS = "wkvrg"  # in the order of files


def silu(x: Array) -> Array:
    return x * sigmoid(x)


class TimeMix:
    """One layer's, and what it keeps of the tokens before.

    `transformed`: as QRWKV6 has it, with no u and no norm, and decays of at least exp(-5).
    """

    def __init__(self, arrays: Mapping[str, Array], number: int, head: int, *, transformed: bool) -> None:
        beginning = f"blk.{number}.time_mix_"
        self.w = {
            name.removeprefix(beginning).removesuffix(".weight"): array
            for name, array in arrays.items()
            if name.startswith(beginning)
        }
        n = len(self.w["lerp_x"])
        self.head, self.heads, self.transformed = head, n // head, transformed
        self.seen, self.state = np.zeros(n), np.zeros((n // head, head, head))  # by dims of keys, then of values

    def mixed(self, x: Array) -> dict[str, Array]:
        """ddlerp, equation 10."""
        w, change = self.w, self.seen - x
        low = np.tanh(w["w1"] @ (x + change * w["lerp_x"])).reshape(5, -1)
        own = w["lerp_fused"].reshape(5, -1) if "lerp_fused" in w else np.stack([w[f"lerp_{part}"] for part in PARTS])
        self.seen = x
        return {part: x + change * (own[i] + w["w2"][i] @ low[i]) for i, part in enumerate(PARTS)}

    def product(self, name: str, x: Array) -> Array:
        y: Array = self.w[name] @ x + self.w.get(f"{name}.bias", 0.0)
        return y

    def __call__(self, x: Array) -> Array:
        w, rows = self.w, self.mixed(x)
        r, k, v = (self.product(name, rows[name[0]]).reshape(-1, self.head) for name in ("receptance", "key", "value"))
        logs = -np.exp(w["decay"] + w["decay_w2"] @ np.tanh(w["decay_w1"] @ rows["w"])).reshape(r.shape)
        decay = np.exp(np.maximum(logs, -5.0) if self.transformed else logs)
        out = np.empty_like(r)
        for h in range(self.heads):
            of_keys = h * len(k) // self.heads
            key, value = k[of_keys], v[of_keys]
            if self.transformed:
                self.state[h] = np.diag(decay[h]) @ self.state[h] + np.outer(key * (1.0 - decay[h]), value)
                out[h] = r[h] @ self.state[h] / np.sqrt(self.head)
            else:
                out[h] = r[h] @ (self.state[h] + np.outer(w["first"][h] * key, value))
                self.state[h] = np.diag(decay[h]) @ self.state[h] + np.outer(key, value)
        gate = self.product("gate", rows["g"])
        if self.transformed:
            return self.product("output", out.reshape(-1) * sigmoid(gate))
        y = normed(out, w["ln"].reshape(out.shape), w["ln.bias"].reshape(out.shape), 64e-5)
        return self.product("output", y.reshape(-1) * silu(gate))


class ChannelMix:
    """The half of a layer after the time mix."""

    def __init__(self, arrays: Mapping[str, Array], number: int) -> None:
        beginning = f"blk.{number}.channel_mix_"
        self.w = {
            name.removeprefix(beginning).removesuffix(".weight"): array
            for name, array in arrays.items()
            if name.startswith(beginning)
        }
        self.seen = np.zeros(len(self.w["lerp_k"]))

    def __call__(self, x: Array) -> Array:
        w, change = self.w, self.seen - x
        self.seen = x
        y: Array = w["value"] @ np.square(np.maximum(w["key"] @ (x + change * w["lerp_k"]), 0.0))
        return sigmoid(w["receptance"] @ (x + change * w["lerp_r"])) * y


def logits(arrays: Mapping[str, npt.NDArray[Any]], ids: npt.NDArray[np.int64], head: int, eps: float, period: int) -> Array:
    """Logits (T, n_vocab) of a file's tensors, by GGUF name. `period`: after how many layers rows are halved."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    n_layers, rows = 1 + max(int(name.split(".")[1]) for name in wide if name.startswith("blk.")), []
    layers = [(TimeMix(wide, number, head, transformed=False), ChannelMix(wide, number)) for number in range(n_layers)]

    def norm(x: Array, name: str) -> Array:
        return normed(x, wide[f"{name}.weight"], wide[f"{name}.bias"], eps)

    for token in ids:
        x = norm(wide["token_embd.weight"][token], "token_embd_norm")
        for number, (time_mix, channel_mix) in enumerate(layers):
            x = x + time_mix(norm(x, f"blk.{number}.attn_norm"))
            x = x + channel_mix(norm(x, f"blk.{number}.attn_norm_2"))
            x = x / 2.0 if period and (number + 1) % period == 0 else x
        rows.append(wide["output.weight"] @ norm(x, "output_norm"))
    return np.stack(rows)


def transformed_logits(arrays: Mapping[str, npt.NDArray[Any]], ids: npt.NDArray[np.int64], head: int, eps: float) -> Array:
    """The same of QRWKV6."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    n_layers, rows = 1 + max(int(name.split(".")[1]) for name in wide if name.startswith("blk.")), []
    layers = [TimeMix(wide, number, head, transformed=True) for number in range(n_layers)]
    for token in ids:
        x = wide["token_embd.weight"][token]
        for number, time_mix in enumerate(layers):
            w = {name.removeprefix(f"blk.{number}.").removesuffix(".weight"): array for name, array in wide.items()}
            x = x + time_mix(rms_normed(x, w["attn_norm"], eps))
            y = rms_normed(x, w["ffn_norm"], eps)
            x = x + w["ffn_down"] @ (silu(w["ffn_gate"] @ y) * (w["ffn_up"] @ y))
        rows.append(wide["output.weight"] @ rms_normed(x, wide["output_norm.weight"], eps))
    return np.stack(rows)
