"""The keys and values of one conversation on the CPU: per layer [kv head][slot][row], and the table of addresses kernels read."""
from __future__ import annotations

import numpy as np

from edgellm.memory.kv_types import kv_row_bytes
from edgellm.memory.layout import MemoryLayout


class KVCache:
    """Zeroed pages are taken from the system when a slot is first written, so a short chat in a large context stays small."""

    def __init__(self, layout: MemoryLayout, kv_type: str) -> None:
        slots = [layout.classes[index].slots for index in layout.layer_class]
        layers = list(zip(layout.layers, slots, strict=True))
        self._keys = [np.zeros((layer.n_kv_heads, n, kv_row_bytes(kv_type, layer.dim_k)), np.uint8) for layer, n in layers]
        self._values = [np.zeros((layer.n_kv_heads, n, kv_row_bytes(kv_type, layer.dim_v)), np.uint8) for layer, n in layers]
        self._address()

    def _address(self) -> None:
        pairs = [(k.ctypes.data, v.ctypes.data) for k, v in zip(self._keys, self._values, strict=True)]
        self._table = np.array(pairs, np.int64).reshape(-1, 2)

    @property
    def table(self) -> int:
        """Address of int64 (layers, 2): keys, values."""
        return int(self._table.ctypes.data)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self._keys, *self._values))

    def fork(self) -> KVCache:
        """A copy, which goes on by itself."""
        other = object.__new__(KVCache)
        other._keys, other._values = [array.copy() for array in self._keys], [array.copy() for array in self._values]
        other._address()
        return other
