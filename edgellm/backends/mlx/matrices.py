"""Weight matrices as MLX holds them, each kind with its own product."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.mlx.cpu_products import CACHED, AffineRows, floats, host, product_by_kernel, product_of_pieces
from edgellm.backends.mlx.groups import GROUP

Array: TypeAlias = Any  # mlx.core.array; mypy does not read MLX's types
Floats = npt.NDArray[np.float32]

PIECE = 1 << 20  # weights decoded at a time: a few MiB of temporaries
SEVERAL = 2  # rows that NumPy multiplies: MLX's CPU build computes quantised products row by row, others with the reference BLAS
KERNEL = 1  # rows that a kernel multiplies by groups of affine quants
SORTED = 64  # rows of experts from which their order pays, as in mlx_lm


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows `start` to `stop` of each expert, in a matrix that has `stored` rows of every expert one after the other."""

    stored: int
    start: int
    stop: int

    def of(self, array: Array) -> Array:
        """(experts * stored, n) -> (experts, stop - start, n)."""
        parts = array.reshape(-1, self.stored, array.shape[-1])
        return parts if self.stop - self.start == self.stored else parts[:, self.start : self.stop]


class Matrix(ABC):
    """W (rows, columns). `half`: products in 16 bits, for GPUs. `narrow`: whether they pass through f16, which ends at 65504.

    Without `half`, kernels multiply by groups of affine quants, and NumPy several rows by other matrices, with weights that are
    decoded some rows at a time: from `worth_decoding` rows on, where that takes longer than MLX's product of one.
    """

    arrays: list[Array]
    narrow: bool
    worth_decoding = 0

    def __init__(self, rows: int, columns: int, half: bool) -> None:
        self._half, self._rows, self._step = half, rows, max(1, (PIECE if half else CACHED) // columns)

    def __call__(self, x: Array) -> Array:
        """x (T, columns) f32 -> x @ W.T (T, rows) f32."""
        if len(x) < self.several:
            return self.product(x)
        rows = np.array(x)
        if self.is_affine:
            return mx.array(product_by_kernel(rows, self._rows, self.affine))
        return mx.array(product_of_pieces(rows, self._pieces()))

    @property
    def is_affine(self) -> bool:
        """True if it has `affine` rows."""
        return type(self).affine is not Matrix.affine

    @property
    def several(self) -> int:
        """The rows of x from which on a product is computed as it is begun, not by MLX."""
        return sys.maxsize if self._half else KERNEL if self.is_affine else max(SEVERAL, self.worth_decoding)

    @abstractmethod
    def product(self, x: Array) -> Array:
        """The same by MLX alone."""

    def affine(self, rows: slice) -> AffineRows:
        """Some rows of W for kernels, of matrices of such groups."""
        raise NotImplementedError

    @abstractmethod
    def decoded(self, rows: slice | Array) -> Array:
        """Some rows of W in f32, by their numbers or one after the other."""

    @abstractmethod
    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        """x (T, k, columns) f32, or (T, 1, columns), by the picked rows of experts (T, k): (T, k, rows) f32."""

    @cached_property
    def _host(self) -> list[npt.NDArray[Any]]:
        return [host(array) for array in self.arrays]

    def _pieces(self) -> Iterator[Array]:
        return (self.decoded(slice(at, at + self._step)) for at in range(0, self._rows, self._step))

    def _product_in_pieces(self, x: Array, kind: Array) -> Array:
        return mx.concatenate([(x.astype(kind) @ piece.astype(kind).T).astype(mx.float32) for piece in self._pieces()], axis=-1)


class Dense(Matrix):
    """F32, F16 or BF16 as in the file; sums are float32 without `half`."""

    def __init__(self, weight: Array, half: bool) -> None:
        super().__init__(len(weight), weight.shape[1], half)
        self.arrays = [weight]
        self._type = weight.dtype if half else mx.float32
        self.narrow = self._type == mx.float16
        if weight.dtype == mx.float32:
            self._step = len(weight)  # they are multiplied where they are

    def product(self, x: Array) -> Array:
        (weight,) = self.arrays
        if self._half or weight.dtype == mx.float32:
            return (x.astype(self._type) @ weight.T).astype(mx.float32)
        return self._product_in_pieces(x, mx.float32)

    def decoded(self, rows: slice | Array) -> Array:
        return self.arrays[0][rows].astype(mx.float32)

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        weight = picked.of(self.arrays[0]).astype(self._type).swapaxes(-1, -2)
        return by_expert(x.astype(self._type), experts, lambda rows, **which: mx.gather_mm(rows, weight, **which))


class Groups(Matrix):
    """Quants in groups of MLX's modes: "affine" has a step and an offset per group, "mxfp4" and "mxfp8" a power of two per 32,
    "nvfp4" an E4M3 per 16.
    """

    def __init__(self, arrays: list[Array], half: bool, mode: str, bits: int, group: int) -> None:
        self.arrays = arrays
        self._how: dict[str, Any] = {"bits": bits, "group_size": group, "mode": mode}  # as MLX has its options
        super().__init__(len(arrays[0]), arrays[0].shape[1] * 32 // bits, half)
        self.worth_decoding = 0 if mode == "affine" else 4  # by MLX
        # Half floats end before the scales of floats do.
        self._type = mx.float32 if not half else arrays[1].dtype if mode == "affine" else mx.bfloat16
        self.narrow = self._type == mx.float16

    def product(self, x: Array) -> Array:
        return mx.quantized_matmul(x.astype(self._type), *self.arrays, transpose=True, **self._how).astype(mx.float32)

    @property
    def is_affine(self) -> bool:
        return bool(self._how["mode"] == "affine")

    def affine(self, rows: slice) -> AffineRows:
        return AffineRows(self._how["bits"], *(array[rows] for array in self._host))

    def decoded(self, rows: slice | Array) -> Array:
        quants, *ends = (array[rows] for array in self.arrays)
        if self._how["mode"] == "affine":
            ends = [end.astype(mx.float32) for end in ends]
        return mx.dequantize(quants, *ends, **self._how, dtype=mx.float32)

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        arrays = [picked.of(array) for array in self.arrays]

        def product(rows: Array, **which: Any) -> Array:
            return mx.gather_qmm(rows, *arrays, transpose=True, **self._how, **which)

        return by_expert(x.astype(self._type), experts, product)


class AffineHalves(Matrix):
    """Groups of 16: the mean of two neighbours' steps, and half their difference with a sign that changes every 16 columns.

    w = (mean + sign * difference) of both step and offset, so x @ W.T is a product of x and one of sign * x with the same quants.
    """

    def __init__(self, mean: Groups, difference: Groups, half: bool) -> None:
        columns = mean.arrays[1].shape[1] * GROUP
        super().__init__(len(mean.arrays[0]), columns, half)
        self._mean, self._difference, self.narrow = mean, difference, mean.narrow
        self._sign = mx.array(np.where(np.arange(columns) // (GROUP // 2) % 2, np.float32(-1), np.float32(1)))
        self.arrays = [*mean.arrays, *difference.arrays[1:], self._sign]

    def product(self, x: Array) -> Array:
        return self._mean.product(x) + self._difference.product(x * self._sign)

    def affine(self, rows: slice) -> AffineRows:
        mean, difference = self._mean.affine(rows), self._difference.affine(rows)
        steps, lows = (
            np.stack([a + b, a - b], axis=-1).reshape(len(a), -1)
            for a, b in zip(map(floats, (mean.steps, mean.lows)), map(floats, (difference.steps, difference.lows)), strict=True)
        )
        return AffineRows(mean.bits, mean.quants, steps, lows)

    def decoded(self, rows: slice | Array) -> Array:
        return self._mean.decoded(rows) + self._difference.decoded(rows) * self._sign

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        return self._mean.gathered(x, experts, picked) + self._difference.gathered(x * self._sign, experts, picked)


class Superblocks(Matrix):
    """Groups of 16 whose steps and offsets are numbers of a superblock of 256 times a whole number: d * scale, and -zero * step or
    -dmin * min. They are multiplied out for each product, and the matrix stays about as small as in the file.
    """

    def __init__(self, quants: Array, parts: list[Array], zero: int, bits: int, half: bool, step_type: Array) -> None:
        super().__init__(len(quants), quants.shape[1] * 32 // bits, half)
        self.arrays, self._zero, self._bits = [quants, *parts], zero, bits
        self._type = step_type if half else mx.float32
        self.narrow = self._type == mx.float16

    def product(self, x: Array) -> Array:
        return self._multiplied_out(self.arrays).product(x)

    def affine(self, rows: slice) -> AffineRows:
        quants, d, scales, *mins = (array[rows] for array in self._host)
        steps = _of_superblock(d, scales)
        return AffineRows(self._bits, quants, steps, -_of_superblock(*mins) if mins else steps * np.float32(-self._zero))

    def decoded(self, rows: slice | Array) -> Array:
        return self._multiplied_out([array[rows] for array in self.arrays]).decoded(slice(None))

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        arrays, rows, n = [picked.of(array) for array in self.arrays], picked.stop - picked.start, experts.size
        if n < len(arrays[0]):  # the chosen experts alone, one after the other
            arrays = [mx.take(array, experts.reshape(-1), axis=0) for array in arrays]
            experts = mx.arange(n, dtype=mx.uint32).reshape(experts.shape)
        matrix = self._multiplied_out([array.reshape(-1, array.shape[-1]) for array in arrays])
        return matrix.gathered(x, experts, Picked(rows, 0, rows))

    def _multiplied_out(self, arrays: list[Array]) -> AffineHalves:
        quants, d, scales, *mins = arrays
        step = _by_superblock(d, scales)
        low = -_by_superblock(*mins) if mins else step * float(-self._zero)
        ends = [end.astype(self._type) for pair in zip(_halves(step), _halves(low), strict=True) for end in pair]
        mean, difference = (Groups([quants, *ends[at : at + 2]], self._half, "affine", self._bits, GROUP) for at in (0, 2))
        return AffineHalves(mean, difference, self._half)


def by_expert(x: Array, experts: Array, product: Callable[..., Array]) -> Array:
    """x (T, k or 1, columns) by `product(rows, rhs_indices=, sorted_indices=)` of experts (T, k): (T, k, rows) f32.

    Many rows are put in the order of their experts, of which Metal then multiplies blocks.
    """
    if experts.size < SORTED:
        return product(x[:, :, None], rhs_indices=experts, sorted_indices=False).squeeze(2).astype(mx.float32)
    ids = experts.reshape(-1)
    order = mx.argsort(ids)
    rows = x.reshape(-1, x.shape[-1])[order // (experts.shape[1] // x.shape[1])]
    y = product(rows[:, None], rhs_indices=ids[order], sorted_indices=True).squeeze(1).astype(mx.float32)
    return y[mx.argsort(order)].reshape(*experts.shape, -1)


def _by_superblock(d: Array, numbers: Array) -> Array:
    """(rows, n / 256) f16 times (rows, n / 16) integers: (rows, n / 16) f32."""
    return (d.astype(mx.float32)[..., None] * numbers.reshape(*d.shape, -1).astype(mx.float32)).reshape(numbers.shape)


def _of_superblock(d: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> Floats:
    """The same in NumPy."""
    products: Floats = d.astype(np.float32)[..., None] * numbers.reshape(*d.shape, -1).astype(np.float32)
    return products.reshape(numbers.shape)


def _halves(step: Array) -> tuple[Array, Array]:
    """Steps of 16 elements as mean and half difference of neighbours: s0 = mean + difference, s1 = mean - difference."""
    pair = step.reshape(len(step), -1, 2) * 0.5
    return pair[..., 0] + pair[..., 1], pair[..., 0] - pair[..., 1]
