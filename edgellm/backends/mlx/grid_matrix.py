"""Matrices whose weights are points of a grid, kept as the file has them: products by tables, and by a kernel of ours on Metal."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

from edgellm.backends.mlx import device
from edgellm.backends.mlx.matrices import PIECE, Array, Matrix, Picked
from edgellm.backends.mlx.metal_source import HEADER, INPUTS, LANES, source
from edgellm.backends.mlx.octets import DEFINITIONS, Number, octets_of, points
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME

FEW = 8  # vectors that the kernel multiplies one by one; more are worth decoding the matrix
TRIED = 768  # columns of the matrix that the kernel is tried with


class Bytes:
    """Octets of all blocks at once: a reader of (..., blocks, bytes of a block) uint8."""

    def __init__(self, blocks: Array) -> None:
        self._blocks = blocks

    def u8(self, at: Number) -> Array:
        taken = self._blocks[..., at : at + 1] if isinstance(at, int) else mx.take(self._blocks, at, axis=-1)
        return taken.astype(mx.uint32)

    def u16(self, at: Number) -> Array:
        return self.u8(at) | self.u8(at + 1) << 8

    def u32(self, at: Number) -> Array:
        return self.u16(at) | self.u16(at + 2) << 16

    def half(self, bits: Array) -> Array:
        return mx.view(bits.astype(mx.uint16), mx.float16).astype(mx.float32)

    def real(self, number: Array) -> Array:
        return number.astype(mx.float32)

    def even(self, seven: Array) -> Array:
        parity = seven ^ seven >> 4
        parity = parity ^ parity >> 2
        return seven | ((parity ^ parity >> 1) & 1) << 7


def decoded(raw: Array, kind: str) -> Array:
    """Rows of bytes (..., row bytes) as weights (..., columns) f32: the very numbers of the type's codec."""
    blocks = raw.reshape(*raw.shape[:-1], -1, TYPES_BY_NAME[kind].block_bytes)
    octet = DEFINITIONS[kind][0](Bytes(blocks), mx.arange(octets_of(kind), dtype=mx.uint32))
    table = mx.array(points(kind).astype(np.float32))
    weights = mx.concatenate([mx.take(table, point, axis=0) for point in octet.points], axis=-1)
    if octet.signs is not None:
        weights = weights * mx.take(_signs(), octet.signs, axis=0)
    if octet.shift is not None:
        weights = weights + octet.shift[..., None]
    return (weights * octet.step[..., None]).reshape(*raw.shape[:-1], -1)


def _signs() -> Array:
    """1 or -1 of each bit of a byte: (256, 8)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=-1, bitorder="little")
    return mx.array(1 - 2 * bits.astype(np.float32))


class Grid(Matrix):
    """Rows of blocks in bytes (rows, row bytes)."""

    def __init__(self, raw: Array, kind: str, half: bool) -> None:
        self._columns = raw.shape[1] // TYPES_BY_NAME[kind].block_bytes * TYPES_BY_NAME[kind].block
        super().__init__(len(raw), self._columns, half)
        self.arrays, self._kind, self.narrow = [raw], kind, half
        self._type = mx.float16 if half else mx.float32
        self._kernel = device.on_gpu() and kernel_works(kind)

    def product(self, x: Array) -> Array:
        if self._kernel and len(x) <= FEW:
            return product(self.arrays[0], self._kind, x, mx.zeros((len(x),), mx.uint32), self._rows)
        return self._product_in_pieces(x, self._type)

    def decoded(self, rows: slice | Array) -> Array:
        return decoded(self.arrays[0][rows], self._kind)

    def gathered(self, x: Array, experts: Array, picked: Picked) -> Array:
        n, rows = experts.size, picked.stop - picked.start
        if self._kernel and n <= FEW * FEW:
            first = (experts.reshape(-1) * picked.stored + picked.start).astype(mx.uint32)
            x = mx.broadcast_to(x, (*experts.shape, self._columns)).reshape(n, -1)
            return product(self.arrays[0], self._kind, x, first, rows).reshape(*experts.shape, rows)
        raw, x = picked.of(self.arrays[0]), x[:, :, None].astype(self._type)
        step = max(1, PIECE // (rows * self._columns))
        if n <= step:
            weights = decoded(mx.take(raw, experts.reshape(-1), axis=0), self._kind).astype(self._type)
            return (x @ weights.reshape(*experts.shape, rows, -1).swapaxes(-1, -2)).squeeze(2).astype(mx.float32)
        y = mx.zeros((*experts.shape, rows))
        for at in range(0, len(raw), step):  # some experts after the other, so that few of them are decoded at a time
            weights = decoded(raw[at : at + step], self._kind).astype(self._type).swapaxes(-1, -2)
            part = mx.gather_mm(x, weights, rhs_indices=mx.clip(experts, at, at + len(weights) - 1) - at).squeeze(2)
            y = mx.where(((experts >= at) & (experts < at + step))[..., None], part.astype(mx.float32), y)
        return y


@cache
def _compiled(kind: str) -> tuple[Any, Array]:
    kernel = mx.fast.metal_kernel(
        name=f"grid_product_{kind.lower()}", input_names=INPUTS, output_names=["y"], source=source(kind), header=HEADER
    )
    return kernel, mx.array(points(kind))


def product(raw: Array, kind: str, x: Array, first: Array, rows: int) -> Array:
    """x (T, columns) by `rows` rows each, from row `first` (T,) on: (T, rows) f32. Raises RuntimeError without Metal."""
    kernel, grid = _compiled(kind)
    (y,) = kernel(
        inputs=[raw, x.astype(mx.float32), first, grid],
        template=[("ROWS", rows), ("COLUMNS", x.shape[1]), ("ROW_BYTES", raw.shape[1])],
        grid=(LANES, rows, len(x)),
        threadgroup=(LANES, 1, 1),
        output_shapes=[(len(x), rows)],
        output_dtypes=[mx.float32],
    )
    return y


@cache
def kernel_works(kind: str) -> bool:
    """True if the kernel and the tables agree on random numbers. Compiles the kernel."""
    rng = np.random.default_rng(0)
    raw = mx.array(CODECS[kind].quantize(rng.standard_normal((16, TRIED)).astype(np.float32)))
    x, first = mx.array(rng.standard_normal((3, TRIED)).astype(np.float32)), [0, 8, 4]
    wanted = mx.stack([row[at : at + 8] for row, at in zip(x @ decoded(raw, kind).T, first, strict=True)])
    try:
        return bool(mx.allclose(product(raw, kind, x, mx.array(first, mx.uint32), 8), wanted, rtol=1e-3, atol=1e-3).item())
    except (RuntimeError, ValueError):
        return False
