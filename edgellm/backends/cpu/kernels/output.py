"""How a product's results are stored, as IR, for all kernels with the record of a matmul: as (y + bias) + residual."""
from __future__ import annotations

from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.simd.base import F32, I64, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import TILE_COLUMNS
from edgellm.backends.cpu.words import MATMUL


def put(e: Generic, y: Any, record: Any, row: Any, column: Any) -> None:
    """Store y, f32 of a weight row or a vector of those from `row` on, of one column."""
    value = cgutils.alloca_once_value(e.b, y)
    bias = _word(e, record, "bias")
    for base, at in ((bias, e.b.add(bias, e.b.mul(row, I64(4)))), _cell(e, record, "residual", row, column)):
        with e.b.if_then(e.b.icmp_signed("!=", base, I64(0))):
            e.b.store(e.b.fadd(e.b.load(value), e.load(y.type, at)), value)
    e.store(e.b.load(value), _cell(e, record, "out", row, column)[1])


def put_rows(e: Generic, y: Any, record: Any, row: Any, column: Any) -> None:
    """`put` of a vector of weight rows at the address y."""
    put(e, e.load(vector(F32, e.tile_rows), y), record, row, column)


def put_tile(e: Generic, totals: Any, record: Any, row: Any, column: Any) -> None:
    """Store the sums at `totals`, a vector of weight rows from `row` on for each column of a tile."""
    b, kind = e.b, vector(F32, e.tile_rows)
    nothing = cgutils.alloca_once_value(b, e.constant(kind, -0.0))       # added to whatever it is, -0 included
    b.store(e.constant(kind, -0.0), nothing)
    bias, (residual, at) = _word(e, record, "bias"), _cell(e, record, "residual", row, column)
    no_residual, zeros = b.icmp_signed("==", residual, I64(0)), b.ptrtoint(nothing, I64)
    bias = b.select(b.icmp_signed("==", bias, I64(0)), zeros, b.add(bias, b.mul(row, I64(4))))
    at, step = b.select(no_residual, zeros, at), b.select(no_residual, I64(0), _word(e, record, "residual_stride"))
    to, to_step, added = _cell(e, record, "out", row, column)[1], _word(e, record, "out_stride"), e.load(kind, bias)
    for c in range(TILE_COLUMNS):
        value = b.fadd(e.load(kind, totals, 4 * e.tile_rows * c), added)
        e.store(b.fadd(value, e.load(kind, at)), to)
        at, to = b.add(at, step), b.add(to, to_step)


def fetch_tile(e: Generic, record: Any, row: Any, first: Any, end: Any) -> None:
    """Ask for the cache lines that `put_tile` of a group of rows uses, of some columns."""
    for name in ("residual", "out"):
        base, at = _cell(e, record, name, row, first)
        end_here = e.b.select(e.b.icmp_signed("==", base, I64(0)), first, end)
        with cgutils.for_range(e.b, e.b.sub(end_here, first)) as loop:
            e.prefetch(e.b.add(at, e.b.mul(loop.index, _word(e, record, f"{name}_stride"))), to_write=name == "out")


def _word(e: Generic, record: Any, name: str) -> Any:
    return e.load(I64, record, MATMUL.at(name))


def _cell(e: Generic, record: Any, name: str, row: Any, column: Any) -> tuple[Any, Any]:
    """The base of a matrix of results, which is 0 where there is none, and the address of one of them."""
    base = _word(e, record, name)
    return base, e.b.add(e.b.add(base, e.b.mul(row, I64(4))), e.b.mul(column, _word(e, record, f"{name}_stride")))
