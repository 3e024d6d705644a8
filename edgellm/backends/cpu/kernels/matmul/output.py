"""Stores the results of a product, as IR, for all kernels with the record of a matmul: as (y + bias) + residual, or as
(y + bias) times the activation of a gate, whose place they may take. Kernels store each result once.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.kernels import activations
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.simd.base import F32, I64, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import TILE_COLUMNS


def put(e: Generic, y: Any, record: Any, row: Any, column: Any, *, gates: bool = True) -> None:
    """Store y, f32 of a weight row or a vector of those from `row` on, of one column. `gates`: whether there may be a gate."""
    value = cgutils.alloca_once_value(e.b, y)
    bias, act = _word(e, record, "bias"), _word(e, record, "act")
    with e.b.if_then(e.b.icmp_signed("!=", bias, 0)):
        e.b.store(e.b.fadd(e.b.load(value), e.load(y.type, e.at(bias, row, 4))), value)
    base, at = _cell(e, record, "residual", row, column)
    with e.b.if_then(e.b.icmp_signed("!=", base, 0)):
        plain, other = e.b.load(value), e.load(y.type, at)
        e.b.store(e.b.fadd(plain, other), value)
        if gates:
            with e.b.if_then(e.b.icmp_signed("!=", act, 0)):
                e.b.store(_gated(e, act, other, plain), value)
    e.store(e.b.load(value), _cell(e, record, "out", row, column)[1])


def put_rows(e: Generic, y: Any, record: Any, row: Any, column: Any) -> None:
    """`put` of a vector of weight rows at the address y."""
    put(e, e.load(vector(F32, e.level.tile_rows), y), record, row, column)


def put_tile(e: Generic, totals: Any, record: Any, row: Any, column: Any) -> None:
    """Store the sums at `totals`, a vector of weight rows from `row` on for each column of a tile."""
    b, kind, act = e.b, vector(F32, e.level.tile_rows), _word(e, record, "act")
    nothing = cgutils.alloca_once_value(b, e.constant(kind, -0.0))  # added to whatever it is, -0 included
    b.store(e.constant(kind, -0.0), nothing)
    bias, (residual, at) = _word(e, record, "bias"), _cell(e, record, "residual", row, column)
    no_residual, zeros = b.icmp_signed("==", residual, 0), b.ptrtoint(nothing, I64)
    bias = b.select(b.icmp_signed("==", bias, 0), zeros, e.at(bias, row, 4))
    at, step = b.select(no_residual, zeros, at), b.select(no_residual, 0, _word(e, record, "residual_stride"))
    to, to_step, added = _cell(e, record, "out", row, column)[1], _word(e, record, "out_stride"), e.load(kind, bias)
    with b.if_else(b.or_(no_residual, b.icmp_signed("==", act, 0))) as (is_residual, is_gate):
        with is_residual:
            other_at, out_at = at, to
            for c in range(TILE_COLUMNS):
                value = b.fadd(e.load(kind, totals, 4 * e.level.tile_rows * c), added)
                e.store(b.fadd(value, e.load(kind, other_at)), out_at)
                other_at, out_at = b.add(other_at, step), b.add(out_at, to_step)
        with is_gate, e.loop(TILE_COLUMNS // 2) as index:
            pair = [b.add(b.mul(index, 2), i) for i in range(2)]  # one would wait for its own operations
            gates = e.join(*(e.load(kind, e.at(at, c, step)) for c in pair))
            values = e.join(*(b.fadd(e.load(kind, e.at(totals, c, 4 * e.level.tile_rows)), added) for c in pair))
            results = b.fmul(activations.gate(e, act, gates), values)
            for i, c in enumerate(pair):
                e.store(e.pick(results, range(i * e.level.tile_rows, (i + 1) * e.level.tile_rows)), e.at(to, c, to_step))


def fetch_tile(e: Generic, record: Any, row: Any, first: Any, end: Any) -> None:
    """Ask for the cache lines that `put_tile` of a group of rows uses, of some columns."""
    for name in ("residual", "out"):
        base, at = _cell(e, record, name, row, first)
        end_here = e.b.select(e.b.icmp_signed("==", base, 0), first, end)
        with e.loop(e.b.sub(end_here, first)) as index:
            e.prefetch(e.at(at, index, _word(e, record, f"{name}_stride")), to_write=name == "out")


def _gated(e: Generic, act: Any, gate: Any, value: Any) -> Any:
    """value times the activation `act`, not 0, of the gate: by a function, for there are many places that store."""
    kind, module = value.type, e.b.module
    is_vector = isinstance(kind, ir.VectorType)
    name = f"gated_{kind.count if is_vector else 1}"
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [I64, kind, kind]), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        inner = type(e)(ir.IRBuilder(function.append_basic_block()))
        act_of, x, y = function.args
        result = activations.gate(inner, act_of, x if is_vector else inner.splat(x))
        inner.b.ret(inner.b.fmul(result if is_vector else inner.lane(result, 0), y))
    return e.b.call(function, [act, gate, value])


def _word(e: Generic, record: Any, name: str) -> Any:
    return e.load(I64, record, MATMUL.at(name))


def _cell(e: Generic, record: Any, name: str, row: Any, column: Any) -> tuple[Any, Any]:
    """The base of a matrix of results, which is 0 where there is none, and the address of one of them."""
    base = _word(e, record, name)
    return base, e.at(e.at(base, row, 4), column, _word(e, record, f"{name}_stride"))
