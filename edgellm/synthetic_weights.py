"""Weights that have a model's shapes and types but not its values: for planning and timing a model that is not here."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import GGMLType, row_bytes
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.mapped import Bytes
from edgellm.weights import Weight, WeightStore

SAMPLE_ROWS, SAMPLE_COLUMNS = 64, 2048  # different values that are repeated: quick to make, and no kernel skips any
LEAST_POOL = 512 << 20  # bytes of a type to read from: a cache of 32 MiB still hides a part of 128
ALIGNMENT = 32  # as tensors lie in a file
MATRIX = 2


class SyntheticWeights(WeightStore):
    """A store over a header alone. Matrices take no memory: all their bytes are one and the same address."""

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self._infos = gguf.tensors
        self._label = gguf.path

    def __getitem__(self, name: str) -> Weight:
        """A weight of the right shape and type. KeyError if the model has none of that name."""
        info = self._infos[name]
        rows, nbytes = math.prod(info.shape[:-1]), row_bytes(info.type, info.shape[-1] if info.shape else 1)
        data = self._bytes(info.type, rows, nbytes, matrix=len(info.shape) >= MATRIX)
        return Weight(name, info.type, info.shape, data, self._label)

    def _bytes(self, kind: GGMLType, rows: int, nbytes: int, *, matrix: bool) -> Bytes:
        return np.broadcast_to(np.zeros(1, np.uint8), (rows, nbytes)) if matrix else np.zeros((rows, nbytes), np.uint8)


class ProbeWeights(SyntheticWeights):
    """A store whose matrices are read as real ones are: valid blocks, from pools that no cache holds, one place after the other."""

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self._pools: dict[str, Bytes] = {}
        self._next: dict[str, int] = {}
        self._sizes = _pool_sizes(self._infos_by_type(gguf))

    def _bytes(self, kind: GGMLType, rows: int, nbytes: int, *, matrix: bool) -> Bytes:
        step = kind.block_bytes * ALIGNMENT
        wanted = rows * nbytes
        if kind.name not in self._pools:
            self._pools[kind.name] = _pool(kind, -(-self._sizes[kind.name] // step) * step)
        pool = self._pools[kind.name]
        start = self._next.get(kind.name, 0)
        if start + wanted > len(pool):
            start = 0
        self._next[kind.name] = start + -(-wanted // step) * step
        return pool[start : start + wanted].reshape(rows, nbytes)

    @staticmethod
    def _infos_by_type(gguf: GGUFFile) -> Mapping[str, list[int]]:
        sizes: dict[str, list[int]] = {}
        for info in gguf.tensors.values():
            sizes.setdefault(info.type.name, []).append(info.nbytes)
        return sizes


def _pool_sizes(sizes: Mapping[str, list[int]]) -> dict[str, int]:
    """Bytes of each type's pool: its largest tensor at least, and no more than all of them."""
    return {name: max(max(each), min(sum(each), LEAST_POOL)) for name, each in sizes.items()}


def _pool(kind: GGMLType, nbytes: int) -> Bytes:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((SAMPLE_ROWS, SAMPLE_COLUMNS), np.float32) * np.float32(0.02)
    sample = CODECS[kind.name].quantize(values).reshape(-1)
    pool = np.empty(nbytes, np.uint8)
    for start in range(0, nbytes, len(sample)):
        pool[start : start + len(sample)] = sample[: nbytes - start]
    return pool
