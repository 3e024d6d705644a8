"""A group of a panel by a tile of activations with the tile unit, as IR: `panel.multiply` where the ISA level has `tiles`.

A product goes through loads, the multiplication and a store, over a hundred cycles; then its sums are read and weighed. So products
are `AHEAD` before the weighing, each in another register of the tile unit than those before it. Results are the same as those of
`panel.multiply` at other ISA levels, bit by bit.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels._prefetch import LINE
from edgellm.backends.cpu.kernels.panel import X_RECORD, add_to_totals, record_bytes, tile_block
from edgellm.backends.cpu.kernels.superblock import Shape
from edgellm.backends.cpu.simd.base import F32, I32, I64, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import BLOCK, TILE_COLUMNS

Value = Any                                      # ir.Value: llvmlite has no static types
AHEAD = 4                                        # products; as many sums has the tile unit


def multiply(e: Generic, shape: Shape, ahead_bytes: int, panel: Value, superblocks: Value, x: Value, totals: Value, block: Value,
             ahead: Value) -> None:
    """See panel.multiply."""
    b, kind, columns, record = e.b, vector(F32, e.tile_rows), range(TILE_COLUMNS), record_bytes(e, shape)
    zero = e.constant(kind, 0.0)
    sums = [cgutils.alloca_once_value(b, zero) for _ in columns]
    for each in sums:
        b.store(zero, each)
    products = _Products(e, shape, panel, x)

    def weigh(index: Value) -> None:
        for line in range(0, ahead_bytes, LINE):
            e.prefetch(b.add(ahead, b.mul(index, I64(ahead_bytes))), line, to_first=False)
        w, at = b.add(panel, b.mul(index, I64(record))), b.add(x, b.mul(index, I64(X_RECORD)))
        for value, each in zip(tile_block(e, shape, [b.load(each) for each in sums], w, at, columns, products.dots(index)), sums,
                               strict=True):
            b.store(value, each)

    def multiply_existing(index: Value, turn: int) -> None:
        with b.if_then(b.icmp_signed("<", index, superblocks), likely=True):
            products.multiply(index, turn)

    together = products.together
    for turn in range(together):
        multiply_existing(I64(turn), turn)
    wholes = b.mul(b.udiv(superblocks, I64(together)), I64(together))
    with cgutils.for_range_slice(b, I64(0), wholes, I64(together)) as (first, _):
        for turn in range(together):
            multiply_existing(b.add(first, I64(together + turn)), turn)
            weigh(b.add(first, I64(turn)))
    with cgutils.for_range_slice(b, wholes, superblocks, I64(1)) as (index, _):
        weigh(index)
    add_to_totals(e, [b.load(each) for each in sums], columns, totals, block)


class _Products:
    """Sums of a tile's blocks by `tile_products`, kept until they are weighed; those of `together` blocks differ in registers."""

    def __init__(self, e: Generic, shape: Shape, panel: Value, x: Value) -> None:
        self._e, self._shape, self._panel, self._x = e, shape, panel, x
        self._size, self._depth, self.together = 4 * TILE_COLUMNS * e.tile_rows, BLOCK // shape.n_scales, AHEAD // shape.n_scales
        line = ir.ArrayType(vector(I32, e.tile_rows), TILE_COLUMNS)
        self._space = e.b.ptrtoint(cgutils.alloca_once(e.b, line, 2 * AHEAD), I64)

    def _place(self, index: Value) -> Value:
        """Where the sums of a superblock's block are kept while twice as many as go together are multiplied."""
        b = self._e.b
        return b.add(self._space, b.mul(b.and_(index, I64(2 * self.together - 1)), I64(self._shape.n_scales * self._size)))

    def multiply(self, index: Value, turn: int) -> None:
        """The block of superblock `index`, which is the `turn`-th of those that go together."""
        e, b, shape, depth = self._e, self._e.b, self._shape, self._depth
        w, x = b.add(self._panel, b.mul(index, I64(record_bytes(e, shape)))), b.add(self._x, b.mul(index, I64(X_RECORD)))
        out, signed = self._place(index), bool(shape.offset) or shape.signed
        for half in range(shape.n_scales):
            e.tile_products(b.add(x, I64(half * depth)), BLOCK, b.add(w, I64(half * depth * e.tile_rows)), depth, signed,
                            b.add(out, I64(half * self._size)), turn * shape.n_scales + half)

    def dots(self, index: Value) -> Callable[[int, Sequence[int]], list[Value]]:
        """What `tile_block` asks: sums of the only block or of a half, for some columns."""
        e, place = self._e, self._place(index)
        return lambda half, some: [e.load(vector(I32, e.tile_rows), place, half * self._size + 4 * e.tile_rows * c) for c in some]
