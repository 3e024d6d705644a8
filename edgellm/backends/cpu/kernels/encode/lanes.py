"""Sixteen f32 side by side as a Numba value with operators: searches run on as many groups of weights at a time, a lane each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import overload

from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, Vec, make_intrinsic, vector
from edgellm.backends.cpu.simd.generic import Generic

LANES = 16
LANE_BYTES = 4 * LANES  # of one vector
F32X16 = Vec("f32", LANES)
V16F, V16I, V16B = vector(F32, LANES), vector(I32, LANES), vector(I8, LANES)
i64, f32, void = types.int64, types.float32, types.void


def _operation(name: str, arguments: int, emit: Callable[..., Any]) -> Any:
    return make_intrinsic(name, F32X16, (F32X16,) * arguments, lambda builder, *values: emit(Generic(builder), *values))


def _sqrt(e: Generic, x: Any) -> Any:
    return e.call("llvm.sqrt.v16f32", V16F, x)


def _magnitude(e: Generic, x: Any) -> Any:
    return e.cast(e.b.and_(e.cast(x, V16I), 0x7FFFFFFF), V16F)


def _choose(compare: str) -> Callable[..., Any]:
    return lambda e, a, b, yes, no: e.b.select(e.b.fcmp_ordered(compare, a, b), yes, no)


OPERATORS: dict[Callable[..., Any], Any] = {
    operator.add: _operation("add16", 2, lambda e, a, b: e.b.fadd(a, b)),
    operator.sub: _operation("sub16", 2, lambda e, a, b: e.b.fsub(a, b)),
    operator.mul: _operation("mul16", 2, lambda e, a, b: e.b.fmul(a, b)),
    operator.truediv: _operation("div16", 2, lambda e, a, b: e.b.fdiv(a, b)),
}


def _give(symbol: Callable[..., Any], function: Any) -> None:
    @overload(symbol)
    def typed(a, b):
        if isinstance(a, Vec) and isinstance(b, Vec) and a.lanes == b.lanes == LANES:
            return lambda a, b: function(a, b)
        return None


for _symbol, _function in OPERATORS.items():
    _give(_symbol, _function)

larger = _operation("larger16", 2, lambda e, a, b: e.larger(a, b))  # the second where one is NaN
smaller = _operation("smaller16", 2, lambda e, a, b: e.smaller(a, b))
magnitude = _operation("magnitude16", 1, _magnitude)
root = _operation("root16", 1, _sqrt)
nearest = _operation("nearest16", 1, lambda e, x: e.nearest(x)[0])  # |x| < 2^22
where_greater = _operation("where_greater16", 4, _choose(">"))  # a > b ? c : d, false for NaN
where_equal = _operation("where_equal16", 4, _choose("=="))
splat = make_intrinsic("splat16", F32X16, (f32,), lambda builder, x: Generic(builder).splat(x, LANES))
first = make_intrinsic("first16", f32, (F32X16,), lambda builder, x: Generic(builder).lane(x, 0))
largest = make_intrinsic("largest16", f32, (F32X16,), lambda builder, x: _fold(Generic(builder), ">", x))
smallest = make_intrinsic("smallest16", f32, (F32X16,), lambda builder, x: _fold(Generic(builder), "<", x))


def _fold(e: Generic, compare: str, x: Any) -> Any:
    return e.fold(x, lambda a, b: e.b.select(e.b.fcmp_ordered(compare, a, b), a, b))


def _at(e: Generic, address: Any, offset: Any) -> Any:
    return e.b.add(address, offset)


def _store_quants(e: Generic, address: Any, offset: Any, quants: Any) -> None:
    e.store(e.b.trunc(e.b.fptosi(quants, V16I), V16B), _at(e, address, offset))


load = make_intrinsic("load16", F32X16, (i64, i64), lambda builder, a, o: (e := Generic(builder)).load(V16F, _at(e, a, o)))
store = make_intrinsic("store16", void, (i64, i64, F32X16), lambda builder, a, o, v: (e := Generic(builder)).store(v, _at(e, a, o)))
store_quants = make_intrinsic(
    "store_quants16",
    void,
    (i64, i64, F32X16),  # integers to bytes
    lambda builder, a, o, v: _store_quants(Generic(builder), a, o, v),
)


def from_half(e: Generic, source: Any, out: Any, native: bool, brain: bool) -> None:
    """Sixteen f16 or bf16 at source to f32 at out."""
    bits = e.load(vector(I16, LANES), source)
    if brain:
        value = e.from_bf16(bits)
    elif native:
        value = e.b.fpext(e.cast(bits, vector(ir.HalfType(), LANES)), V16F)
    else:
        value = e.from_f16(bits)
    e.store(value, out)


# An output of a packer: where sixteen bytes go, and what is put together there: (first quant, shift right, mask, shift left).
Pieces = tuple[tuple[int, int, int, int], ...]


def packer(outputs: tuple[tuple[int, Pieces], ...]) -> Callable[[Any, Any, Any], None]:
    """Writes the IR that packs bytes of quants at one address into the fields of a block at another."""

    def emit(e: Generic, quants: Any, block: Any) -> None:
        b = e.b
        for place, pieces in outputs:
            total = None
            for source, right, mask, left in pieces:
                part = e.load(V16B, quants, source)
                if right:
                    part = b.lshr(part, right)
                part = b.and_(part, mask)
                if left:
                    part = b.shl(part, left)
                total = part if total is None else b.or_(total, part)
            e.store(total, block, place)

    return emit
