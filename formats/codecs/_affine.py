"""Superblocks whose groups have a scale and a minimum, d * sc * q - dmin * m: Q2_K, Q4_K and Q5_K differ by numbers and fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _fit
from ._blocks import QK_K, empty, scale
from ._codec import Blocks, Codec, Floats, Ints


@dataclass(frozen=True, slots=True)
class Affine:
    """A type's `groups`, its largest `quant` and `scale`, and its fields: sc and m (blocks, groups), and q (blocks, 256).

    `store`: writes sc, m and q to blocks. `steps`: of the search without importance (`_fit.affine`), whose errors weigh as much as
    a value's size, and where `average` is set, as the root mean square of its group too. `doubled`: of errors by importance, the
    mean square counts twice.
    """

    dtype: np.dtype[np.void]
    groups: int
    quant: int
    scale: int
    steps: _fit.Steps
    average: bool
    doubled: bool
    numbers: Callable[[Blocks], tuple[Ints, Ints]]
    quants: Callable[[Blocks], Ints]
    store: Callable[[Blocks, Any, Any, Any], None]

    def codec(self, name: str) -> Codec:
        return Codec(name, self.dtype, self._unpack, self._pack, self._pack_weighted)

    def _grouped(self, values: Any) -> Any:
        return values.reshape(-1, self.groups, QK_K // self.groups)

    def _unpack(self, blocks: Blocks) -> Floats:
        step, low = self._steps(blocks, *self.numbers(blocks))
        q = self._grouped(self.quants(blocks)).astype(np.float32)
        values: Floats = (step[..., None] * q - low[..., None]).reshape(-1, QK_K)
        return values

    def _steps(self, blocks: Blocks, sc: Ints, m: Ints) -> tuple[Floats, Floats]:
        return scale(blocks["d"]) * sc.astype(np.float32), scale(blocks["dmin"]) * m.astype(np.float32)

    def _pack(self, x: Floats) -> Blocks:
        groups, last = self._grouped(x), np.float32(self.scale)
        weights = np.abs(groups)
        if self.average:
            weights = np.sqrt(_fit.total(groups * groups) / np.float32(QK_K // self.groups)) + weights
        step, low, _ = _fit.affine(groups, weights, self.quant, self.steps)
        step, low = step[..., 0], low[..., 0]
        top, high = np.maximum(step.max(axis=-1, keepdims=True), 0), low.max(axis=-1, keepdims=True)
        sc, m = _fit.by_widest(step, top, self.scale), _fit.by_widest(low, high, self.scale)
        return self._blocks(x, top / last, high / last, sc, m)

    def _pack_weighted(self, x: Floats, importance: Floats, _: Floats) -> Blocks:
        mean_square = np.float32(1 + self.doubled) * _fit.total(x * x) / np.float32(QK_K)
        weights = self._grouped(_fit.importance_weights(x, importance, mean_square))
        step, low, _ = _fit.affine(self._grouped(x), weights, self.quant, _fit.WITH_IMPORTANCE)
        costs = _fit.total(weights)[..., 0]
        d, sc = _fit.positive(step[..., 0], costs, self.scale)
        dmin, m = _fit.positive(low[..., 0], costs, self.scale)
        return self._blocks(x, d, dmin, sc.astype(np.int32), m.astype(np.int32))

    def _blocks(self, x: Floats, d: Floats, dmin: Floats, sc: Ints, m: Ints) -> Blocks:
        blocks = empty(x, self.dtype)
        blocks["d"], blocks["dmin"] = d[:, 0], dmin[:, 0]
        step, low = self._steps(blocks, sc, m)
        q = _fit.quantise(self._grouped(x) + low[..., None], step[..., None], 0, self.quant).reshape(-1, QK_K)
        self.store(blocks, sc, m, q)
        return blocks
