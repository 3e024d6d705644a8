"""Differences between a checkpoint's tensor and GGUF's: pieces, order of rows, shapes, values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any  # of parsed JSON

import numpy as np
import numpy.typing as npt

Config = Mapping[str, Any]
Metadata = dict[str, object]  # values of GGUF keys without the architecture's name; None is left out
Rows = npt.NDArray[np.int64]
Shape = tuple[int, ...]
Floats = npt.NDArray[np.float32]
Order = Callable[[Config, Shape], Rows]
"""Which rows (or columns) of a tensor of that shape come in which order; those of experts are numbered one after the other."""


def copied(names: Mapping[str, object]) -> Callable[[Config], Metadata]:
    """GGUF keys that are settings under another name. One that is no text is the key's value."""

    def keys(config: Config) -> Metadata:
        return {key: config.get(name) if isinstance(name, str) else name for key, name in names.items()}

    return keys


@dataclass(frozen=True, slots=True)
class Slice:
    """One tensor of GGUF's. `name`: its part, "" for the one that it is a piece of.

    `rows`: which of all rows (of experts, one after the other) it has; `columns`: which columns; then `shape`: its shape, None
    for the same number of dimensions; then `turned`: the last two change places (or whether they do, by the tensor's shape).
    `values`: from float32 to float32, on the tensor as it comes out, which is float32 then; or of the checkpoint's type, rounded
    once, where it `keeps` it.
    """

    name: str = ""
    rows: Order | None = None
    columns: Order | None = None
    shape: Callable[[Config, Shape], Shape] | None = None
    turned: bool | Callable[[Config, Shape], bool] = False
    values: Callable[[Config, Floats], Floats] | None = None
    keeps: bool = False


def rows_of(shape: Shape) -> int:
    """The number of rows; of a vector, its length."""
    return math.prod(shape[:-1]) if len(shape) > 1 else shape[0]


def half(which: int, of: int = 2) -> Order:
    """The `which`-th of `of` equal runs of rows; with experts, of those of each expert."""

    def rows(config: Config, shape: Shape) -> Rows:
        experts = math.prod(shape[:-2])
        return np.arange(rows_of(shape)).reshape(experts, of, -1)[:, which].reshape(-1)

    return rows


def flat(config: Config, shape: Shape) -> Shape:
    """A vector."""
    return (int(np.prod(shape)),)


def squeezed(config: Config, shape: Shape) -> Shape:
    """Without the 1 in a convolution's shape: in the middle, in MLX's folders at the end."""
    return (shape[0], math.prod(shape[1:])) if len(shape) > 2 else shape


def column(config: Config, shape: Shape) -> Shape:
    """A vector as rows of one."""
    return (*shape, 1)


def plus_one(config: Config, values: Floats) -> Floats:
    """Norms that are stored less 1."""
    return values + np.float32(1.0)


def minus_exp(config: Config, values: Floats) -> Floats:
    """The decay of a state, whose logarithm checkpoints store."""
    return -np.exp(values)


FLAT = (Slice(shape=flat),)
CONVOLUTION = (Slice(shape=squeezed),)
GATE_AND_UP = (Slice("ffn_gate", half(0)), Slice("ffn_up", half(1)))
DECAY = (Slice(values=minus_exp),)


def by_heads(config: Config, shape: Shape, kv_heads: int) -> Rows:
    """From rows of each head of keys with its queries, key and value to all queries, all keys, all values."""
    heads = config["num_attention_heads"]
    rows = np.arange(rows_of(shape)).reshape(kv_heads, heads // kv_heads + 2, -1)
    return np.concatenate([rows[:, :-2].reshape(-1), rows[:, -2].reshape(-1), rows[:, -1].reshape(-1)])


def own_heads(config: Config, shape: Shape) -> Rows:
    """`by_heads` where each head has a key and a value of its own."""
    return by_heads(config, shape, config["num_attention_heads"])
