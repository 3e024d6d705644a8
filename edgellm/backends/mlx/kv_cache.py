"""The states of one conversation in MLX: keys and values (1, kv heads, slots, dim, or bytes of quants), growing until the ring has
its full size; recurrent states (slots, ...)."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, TypeAlias

import mlx.core as mx
import numpy as np

from edgellm.backends.mlx.device import own_errors
from edgellm.backends.mlx.kv_quants import kv_array
from edgellm.memory.layout import RECURRENT, MemoryLayout

Array: TypeAlias = Any  # mlx.core.array; mypy does not read MLX's types

STEP = 256  # slots by which it grows, and the sizes that attention is traced for
NUMBER = struct.Struct("<q")
LISTS = ("keys", "values", "sinks", "recurrent")


class MlxKVCache:
    """Lists by state. `keys`, `values`; `sinks`: the sinks' keys as they were rotated at their true positions, f32; `recurrent`:
    what a recurrent layer keeps. Those that a state has nothing to do with are empty arrays, as values are that are part of keys.

    `turned`: by how many positions the sinks in `keys` have been turned on, so that one rotation of a query serves all keys.
    """

    def __init__(self, layout: MemoryLayout, kv_type: str) -> None:
        self.layout, self.turned = layout, 0
        self.lists = [[mx.zeros((1, 1, 0, 1))] * len(layout.layers) for _ in LISTS]
        for state, layer, index in layout.kv:
            self.keys[state] = kv_array(kv_type, layer.n_kv_heads, layer.dim_k)
            self.values[state] = kv_array(kv_type, layer.n_kv_heads, layer.dim_v)
            self.sinks[state] = mx.zeros((1, layer.n_kv_heads, layout.classes[index].sinks, layer.dim_k), mx.float32)
        for state, spec in layout.recurrent:
            self.recurrent[state] = mx.zeros((layout.state_slots, *spec.shape), mx.float32)
        mx.eval(self.arrays)  # here as below: another thread could not compute what this one has begun

    @property
    def keys(self) -> list[Array]:
        return self.lists[0]

    @property
    def values(self) -> list[Array]:
        return self.lists[1]

    @property
    def sinks(self) -> list[Array]:
        return self.lists[2]

    @property
    def recurrent(self) -> list[Array]:
        return self.lists[3]

    @property
    def arrays(self) -> list[Array]:
        return [array for arrays in self.lists for array in arrays]

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays)

    def fork(self) -> MlxKVCache:
        """A copy that continues independently. MLX copies an array once one of those that share it is written."""
        other = object.__new__(MlxKVCache)
        other.layout, other.turned = self.layout, self.turned
        with own_errors("copy keys and values"):
            other.lists = [[mx.array(array) for array in arrays] for arrays in self.lists]
            mx.eval(other.arrays)
        return other

    def save(self, file: BinaryIO) -> None:
        """By how much sinks are rotated; keys, values and sinks: slots (int64), then quants or f32; recurrent states: bytes."""
        file.write(NUMBER.pack(self.turned))
        for array in (*self.keys, *self.values, *self.sinks):
            file.write(NUMBER.pack(array.shape[2]) + np.array(array.astype(_stored(array))).tobytes())
        for array in self.recurrent:
            file.write(np.array(array.astype(mx.float32)).tobytes())

    @classmethod
    def load(cls, layout: MemoryLayout, kv_type: str, file: BinaryIO) -> MlxKVCache:
        """Read a state that `save` wrote for the same layout. Raises ValueError for anything else."""
        cache = cls(layout, kv_type)
        cache.turned = _number(file)
        for arrays in (cache.keys, cache.values, cache.sinks):
            for state, array in enumerate(arrays):
                index, n, (_, heads, _, dim) = layout.layer_class[state], _number(file), array.shape
                if not 0 <= n <= (0 if index == RECURRENT else layout.classes[index].slots):
                    raise ValueError(f"{n} slots are more than the layout has")
                kind = np.uint8 if array.dtype == mx.uint8 else np.float32
                data = file.read(heads * n * dim * np.dtype(kind).itemsize)
                arrays[state] = mx.array(np.frombuffer(data, kind).reshape(1, heads, n, dim)).astype(array.dtype)
        for state, array in enumerate(cache.recurrent):
            data = file.read(array.size * 4)
            cache.recurrent[state] = mx.array(np.frombuffer(data, np.float32).reshape(array.shape))
        mx.eval(cache.arrays)
        return cache

    def reserve(self, ends: list[int]) -> None:
        """Make room for the slots below `ends[c]` of memory class c, in whole steps."""
        for layer, spec, index in self.layout.kv:
            wanted = min(-(-ends[index] // STEP) * STEP, self.layout.classes[index].slots)
            for held in (self.keys,) if spec.v_is_k_prefix else (self.keys, self.values):
                missing = wanted - held[layer].shape[2]
                if missing > 0:
                    held[layer] = mx.pad(held[layer], [(0, 0), (0, 0), (0, missing), (0, 0)])
                    mx.eval(held[layer])  # one after the other: the old one is freed before the next is copied


def _stored(array: Array) -> Array:
    """The type of an array in a file."""
    return mx.uint8 if array.dtype == mx.uint8 else mx.float32


def _number(file: BinaryIO) -> int:
    data = file.read(NUMBER.size)
    if len(data) != NUMBER.size:
        raise ValueError("the file ends too early")
    return int(NUMBER.unpack(data)[0])
