"""Weight matrices as MLX holds them, each kind with its own product."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import mlx.core as mx
import numpy as np

from edgellm.backends.mlx.groups import GROUP

Array: TypeAlias = Any  # mlx.core.array; mypy does not read MLX's types

PIECE = 1 << 20  # weights widened or decoded at a time: a few MiB of temporaries
FLOAT_GROUPS = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}  # MLX's modes of small floats: bits, elements of a group


MANY = 32  # rows that MLX's CPU build multiplies by a turned copy of the weights in half the time, the copy included


def side_by_side(x: Array, pieces: Iterable[Array]) -> Array:
    """x (T, columns) by the weights (n, columns) of all pieces: (T, all n) f32."""
    copies = x.dtype == mx.float32 and len(x) >= MANY
    products = (x @ (mx.contiguous(piece.T) if copies else piece.T) for piece in pieces)
    return mx.concatenate([product.astype(mx.float32) for product in products], axis=-1)


class Matrix(Protocol):
    """W (rows, columns). `narrow`: whether its product passes through f16, which ends at 65504."""

    narrow: bool

    def __call__(self, x: Array) -> Array:
        """x (T, columns) f32 -> x @ W.T (T, rows) f32."""
        ...

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        """x (T, k, columns) f32, or (T, 1, columns), by the picked rows of experts (T, k): (T, k, rows) f32."""
        ...

    @property
    def arrays(self) -> list[Array]: ...


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


class Dense:
    """F32, F16 or BF16 as in the file. Without `half`, sums are float32, for which 16-bit weights are widened in pieces."""

    def __init__(self, weight: Array, half: bool) -> None:
        self._weight = weight
        self._whole = weight.dtype == mx.float32 or half
        self._type = weight.dtype if half else mx.float32
        self.narrow = self._type == mx.float16
        self._step = max(1, PIECE // weight.shape[1])

    def __call__(self, x: Array) -> Array:
        x = x.astype(self._type)
        if self._whole and (len(x) < MANY or self._type != mx.float32):
            return (x @ self._weight.T).astype(mx.float32)
        rows = range(0, self._weight.shape[0], self._step)
        return side_by_side(x, (self._weight[at : at + self._step].astype(self._type) for at in rows))

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        weight = picked.of(self._weight).astype(self._type).swapaxes(-1, -2)
        y = mx.gather_mm(x[:, :, None].astype(self._type), weight, rhs_indices=experts)
        return y.squeeze(2).astype(mx.float32)

    @property
    def arrays(self) -> list[Array]:
        return [self._weight]


class Affine:
    """Quants with one step and offset per 32 weights, as in mx.quantize."""

    def __init__(self, quants: Array, steps: Array, lows: Array, bits: int, half: bool, group: int = GROUP) -> None:
        self._quants, self._steps, self._lows, self._bits, self._group = quants, steps, lows, bits, group
        self._type, self._half = steps.dtype if half else mx.float32, half
        self.narrow = self._type == mx.float16

    def __call__(self, x: Array) -> Array:
        if len(x) >= MANY and not self._half:
            step = max(1, PIECE // x.shape[1])
            return side_by_side(x, (self._decoded(slice(at, at + step)) for at in range(0, len(self._quants), step)))
        y = mx.quantized_matmul(
            x.astype(self._type), self._quants, self._steps, self._lows, transpose=True, group_size=self._group, bits=self._bits
        )
        return y.astype(mx.float32)

    def _decoded(self, rows: slice) -> Array:
        ends = (end[rows].astype(mx.float32) for end in (self._steps, self._lows))
        return mx.dequantize(self._quants[rows], *ends, group_size=self._group, bits=self._bits)

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        y = mx.gather_qmm(
            x[:, :, None].astype(self._type),
            *(picked.of(array) for array in self.arrays),
            rhs_indices=experts,
            transpose=True,
            group_size=self._group,
            bits=self._bits,
        )
        return y.squeeze(2).astype(mx.float32)

    @property
    def arrays(self) -> list[Array]:
        return [self._quants, self._steps, self._lows]


class AffineHalves:
    """Groups of 16: the mean of two neighbours' steps, and half their difference with a sign that changes every 16 columns.

    w = (mean + sign * difference) of both step and offset, so x @ W.T is a product of x and one of sign * x with the same quants.
    """

    def __init__(self, mean: Affine, difference: Affine, columns: int) -> None:
        self._mean, self._difference, self.narrow = mean, difference, mean.narrow
        self._sign = mx.array(np.where(np.arange(columns) // (GROUP // 2) % 2, np.float32(-1), np.float32(1)))

    def __call__(self, x: Array) -> Array:
        return self._mean(x) + self._difference(x * self._sign)

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        return self._mean.gathered(x, experts, picked) + self._difference.gathered(x * self._sign, experts, picked)

    @property
    def arrays(self) -> list[Array]:
        return [*self._mean.arrays, *self._difference.arrays[1:], self._sign]


class Superblocks:
    """Groups of 16 whose steps and offsets are numbers of a superblock of 256 times a whole number: d * scale, and -zero * step or
    -dmin * min. They are multiplied out for each product, and the matrix stays about as small as in the file.
    """

    def __init__(self, quants: Array, parts: list[Array], zero: int, bits: int, half: bool, step_type: Array) -> None:
        self._quants, self._parts, self._zero, self._bits, self._half = quants, parts, zero, bits, half
        self._type, self.narrow = step_type, half and step_type == mx.float16

    def __call__(self, x: Array) -> Array:
        return self._multiplied_out(self.arrays)(x)

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
        (mean_step, step), (mean_low, low) = _halves(step), _halves(low)
        mean_step, mean_low, step, low = (end.astype(self._type) for end in (mean_step, mean_low, step, low))
        mean = Affine(quants, mean_step, mean_low, self._bits, self._half)
        difference = Affine(quants, step, low, self._bits, self._half)
        return AffineHalves(mean, difference, quants.shape[-1] * 32 // self._bits)

    @property
    def arrays(self) -> list[Array]:
        return [self._quants, *self._parts]


def _by_superblock(d: Array, numbers: Array) -> Array:
    """(rows, n / 256) f16 times (rows, n / 16) whole numbers: (rows, n / 16) f32."""
    return (d.astype(mx.float32)[..., None] * numbers.reshape(*d.shape, -1).astype(mx.float32)).reshape(numbers.shape)


def _halves(step: Array) -> tuple[Array, Array]:
    """Steps of 16 elements as mean and half difference of neighbours: s0 = mean + difference, s1 = mean - difference."""
    pair = step.reshape(len(step), -1, 2) * 0.5
    return pair[..., 0] + pair[..., 1], pair[..., 0] - pair[..., 1]


class SmallFloats:
    """Floats in MLX's own modes: "mxfp4" and "mxfp8" with a power of two per 32, "nvfp4" with an E4M3 per 16."""

    narrow = False

    def __init__(self, quants: Array, scales: Array, half: bool, mode: str = "mxfp4") -> None:
        self._quants, self._scales, self._mode, (self._bits, self._group) = quants, scales, mode, FLOAT_GROUPS[mode]
        self._type = mx.bfloat16 if half else mx.float32  # half floats end before the scales do

    def __call__(self, x: Array) -> Array:
        y = mx.quantized_matmul(
            x.astype(self._type),
            self._quants,
            self._scales,
            transpose=True,
            group_size=self._group,
            bits=self._bits,
            mode=self._mode,
        )
        return y.astype(mx.float32)

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        y = mx.gather_qmm(
            x[:, :, None].astype(self._type),
            *(picked.of(array) for array in self.arrays),
            rhs_indices=experts,
            transpose=True,
            group_size=self._group,
            bits=self._bits,
            mode=self._mode,
        )
        return y.squeeze(2).astype(mx.float32)

    @property
    def arrays(self) -> list[Array]:
        return [self._quants, self._scales]
