"""Products of few rows of f32 with groups of affine quants, for MLX's CPU build: weights are decoded in registers. Variants
`bits:type`, the type of steps and lows.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.affine import PRODUCT
from edgellm.backends.cpu.kernels.matmul.matmul_float import BYTES, CONVERT, ELEMENT
from edgellm.backends.cpu.kernels.unpack.affine import octet
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic

TILES = {1: 4, 2: 4, 4: 2, 8: 1}  # columns of x: rows of weights, whose sums fit sixteen registers
i64, void = types.int64, types.void


def build(variant: str, isa: Isa) -> KernelFunction:
    bits, kind = int(variant.split(":")[0]), variant.split(":")[1]
    arguments = PRODUCT.reader(isa, "rows columns x out out_bytes groups octets")
    one, two, four, eight = (
        isa.make(f"tile_{n}", void, (i64,) * 8, lambda e, *a, n=n: _tile(e, bits, kind, n, *a)) for n in TILES
    )  # of each number of columns

    def affine_rows(op, ith, nth):
        rows, columns, x, out, out_bytes, groups, octets = arguments(op)
        x_bytes, c = groups * octets * 32, 0
        while c < columns:
            at, to, left = x + c * x_bytes, out + c * out_bytes, columns - c
            if left >= 8:
                for row in range(rows):
                    eight(op, row, rows, groups, octets, at, to, out_bytes)
                c += 8
            elif left >= 4:
                for row in range(0, rows, 2):
                    four(op, row, rows, groups, octets, at, to, out_bytes)
                c += 4
            elif left >= 2:
                for row in range(0, rows, 4):
                    two(op, row, rows, groups, octets, at, to, out_bytes)
                c += 2
            else:
                for row in range(0, rows, 4):
                    one(op, row, rows, groups, octets, at, to, out_bytes)
                c += 1

    return affine_rows


def _tile(
    e: Generic,
    bits: int,
    kind: str,
    n_columns: int,
    record: Any,
    first: Any,
    rows: Any,
    groups: Any,
    octets: Any,
    x: Any,
    out: Any,
    out_bytes: Any,
) -> None:
    """A tile of rows from `first` on; past the last one, it is computed again."""
    b, size, last = e.b, BYTES[kind], e.b.sub(rows, 1)
    quants, steps, lows = (e.load(I64, record, offset) for offset in PRODUCT.offsets("quants steps lows"))
    numbers = [b.add(first, i) for i in range(TILES[n_columns])]
    numbers = [b.select(b.icmp_signed("<", number, last), number, last) for number in numbers]
    octet_count = b.mul(groups, octets)
    columns = [e.at(x, octet_count, 32 * j) for j in range(n_columns)]
    totals = [[cgutils.alloca_once_value(b, e.constant(V8F, 0.0)) for _ in columns] for _ in numbers]
    for each in totals:
        for total in each:
            b.store(e.constant(V8F, 0.0), total)
    starts = [e.at(quants, b.mul(number, octet_count), bits) for number in numbers]
    scales = [[e.at(part, b.mul(number, groups), size) for part in (steps, lows)] for number in numbers]
    with e.loop(groups) as group:
        pairs = [[e.splat(_number(e, kind, e.at(at, group, size))) for at in each] for each in scales]
        before = b.mul(group, octets)
        with e.loop(octets) as index:
            k = b.add(before, index)
            values = [e.load(V8F, e.at(column, k, 32)) for column in columns]
            for start, (step, low), each in zip(starts, pairs, totals, strict=True):
                weights = octet(e, bits, e.at(start, k, bits), step, low)
                for value, total in zip(values, each, strict=True):
                    b.store(e.fma(weights, value, b.load(total)), total)
    sums = [b.load(total) for each in totals for total in each]
    found = e.sum_of_each(sums + [e.constant(V8F, 0.0)] * (8 - len(sums)))
    for at, number in enumerate(numbers):
        for j in range(n_columns):
            e.store(e.lane(found, at * n_columns + j), e.at(e.at(out, out_bytes, j), number, 4))


def _number(e: Generic, kind: str, address: Any) -> Any:
    """A step or a low as f32."""
    return e.lane(CONVERT[kind](e, e.load(vector(ELEMENT[kind], 1), address)), 0) if kind != "F32" else e.load(F32, address)
