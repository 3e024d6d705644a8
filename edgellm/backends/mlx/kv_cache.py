"""The keys and values of one conversation in MLX: per layer (1, kv heads, slots, dim), growing until the ring is whole."""
from __future__ import annotations

import struct
from typing import Any, BinaryIO, TypeAlias

import mlx.core as mx
import numpy as np

from edgellm.memory.layout import MemoryLayout

Array: TypeAlias = Any           # mlx.core.array; mypy does not read MLX's types

STEP = 256                       # slots by which it grows, and the sizes that attention is traced for
NUMBER = struct.Struct("<q")
DTYPES = {"f32": mx.float32, "f16": mx.float16}


class KVCache:
    """`keys`, `values` by layer; `sinks`: the sinks' keys as they were rotated at their true positions, f32.

    `turned`: by how many positions the sinks in `keys` have been turned on, so that one rotation of a query serves all keys.
    """

    def __init__(self, layout: MemoryLayout, kv_type: str) -> None:
        self.layout, self.turned = layout, 0
        dtype = DTYPES[kv_type]
        self.keys = [mx.zeros((1, layer.n_kv_heads, 0, layer.dim_k), dtype) for layer in layout.layers]
        self.values = [mx.zeros((1, layer.n_kv_heads, 0, layer.dim_v), dtype) for layer in layout.layers]
        counts = [layout.classes[index].sinks for index in layout.layer_class]
        self.sinks = [mx.zeros((1, layer.n_kv_heads, n, layer.dim_k), mx.float32)
                      for layer, n in zip(layout.layers, counts, strict=True)]

    @property
    def arrays(self) -> list[Array]:
        return [*self.keys, *self.values, *self.sinks]

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays)

    def fork(self) -> KVCache:
        """A second cache that goes on by itself. MLX copies an array once one of those that share it is written."""
        other = object.__new__(KVCache)
        other.layout, other.turned = self.layout, self.turned
        other.keys, other.values, other.sinks = ([mx.array(array) for array in arrays]
                                                 for arrays in (self.keys, self.values, self.sinks))
        return other

    def save(self, file: BinaryIO) -> None:
        """By how much sinks are turned, then each array: slots (int64), then its bytes as f32."""
        file.write(NUMBER.pack(self.turned))
        for array in self.arrays:
            file.write(NUMBER.pack(array.shape[2]) + np.array(array.astype(mx.float32)).tobytes())

    @classmethod
    def load(cls, layout: MemoryLayout, kv_type: str, file: BinaryIO) -> KVCache:
        """What `save` wrote, for the same layout. Raises ValueError for anything else."""
        cache = cls(layout, kv_type)
        cache.turned = _number(file)
        for arrays in (cache.keys, cache.values, cache.sinks):
            for layer, array in enumerate(arrays):
                n, (_, heads, _, dim) = _number(file), array.shape
                if not 0 <= n <= layout.classes[layout.layer_class[layer]].slots:
                    raise ValueError(f"{n} slots are more than the layout has")
                data = file.read(heads * n * dim * 4)
                arrays[layer] = mx.array(np.frombuffer(data, np.float32).reshape(1, heads, n, dim)).astype(array.dtype)
        return cache

    def reserve(self, ends: list[int]) -> None:
        """Make room for the slots below `ends[c]` of memory class c, in whole steps."""
        for layer, index in enumerate(self.layout.layer_class):
            wanted = min(-(-ends[index] // STEP) * STEP, self.layout.classes[index].slots)
            for held in (self.keys, self.values):
                missing = wanted - held[layer].shape[2]
                if missing > 0:
                    held[layer] = mx.pad(held[layer], [(0, 0), (0, 0), (0, missing), (0, 0)])
                    mx.eval(held[layer])         # one after the other: the old one is freed before the next is copied


def _number(file: BinaryIO) -> int:
    data = file.read(NUMBER.size)
    if len(data) != NUMBER.size:
        raise ValueError("the file ends too early")
    return int(NUMBER.unpack(data)[0])
