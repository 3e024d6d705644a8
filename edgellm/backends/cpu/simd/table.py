"""The operations of an ISA level as Numba functions, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from edgellm.backends.cpu.simd.base import F32, F32X8, I8, I16, I32, I64, make_intrinsic, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic
from edgellm.backends.cpu.system import YIELD_SYMBOL

KernelFunction = Callable[[int, int, int], None]  # (address of a record, thread, threads)
i64, f32, void = types.int64, types.float32, types.void
V8H = vector(I16, 8)


class Isa:
    """One ISA level: `isa.fma_f32x8` and the others of `OPERATIONS` are Numba functions, `isa("load_i64 fma_f32x8")` gives several;
    `make` adds a kernel's own.

    Addresses and offsets are int64, in bytes, unaligned; integers are loaded as int64.
    """

    def __init__(self, instructions: type[Generic]) -> None:
        self.instructions, self.level = instructions, instructions.level
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:  # Any: a Numba function has no static type
        if name.startswith("_") or name not in OPERATIONS:
            raise AttributeError(f"no SIMD operation {name}")
        if name not in self._made:
            self._made[name] = self.make(name, *OPERATIONS[name])
        return self._made[name]

    def __call__(self, names: str) -> tuple[Any, ...]:
        """Several operations by their names."""
        return tuple(getattr(self, name) for name in names.split())

    def make(self, name: str, result: Any, arguments: tuple[Any, ...], emit: Callable[..., Any]) -> Any:
        """A Numba function whose body is what `emit(instructions, *values)` writes."""
        return make_intrinsic(name, result, arguments, lambda builder, *values: emit(self.instructions(builder), *values))


def _offset(e: Generic, address: Any, offset: Any) -> Any:
    return e.b.add(address, offset)


def _load_integer(kind: Any, signed: bool) -> Callable[..., Any]:
    def emit(e: Generic, address: Any, offset: Any) -> Any:
        value = e.load(kind, _offset(e, address, offset))
        return value if kind is I64 else (e.b.sext if signed else e.b.zext)(value, I64)

    return emit


def _store_integer(kind: Any) -> Callable[..., Any]:
    def emit(e: Generic, address: Any, offset: Any, value: Any) -> None:
        e.store(value if kind is I64 else e.b.trunc(value, kind), _offset(e, address, offset))

    return emit


def _one(e: Generic, convert: Callable[[Any], Any], value: Any) -> Any:
    """A conversion of vectors applied to a scalar."""
    return e.lane(convert(e.splat(value)), 0)


def _call_kernel(e: Generic, address: Any, *arguments: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    e.b.call(e.b.inttoptr(address, kind.as_pointer()), arguments)


def _pointer(e: Generic, address: Any) -> Any:
    return e.b.inttoptr(address, I64.as_pointer())


_LOAD, _UNARY, _BINARY = (i64, i64), (F32X8,), (F32X8, F32X8)
Operation = tuple[Any, tuple[Any, ...], Callable[..., Any]]  # result, arguments, how it is written

OPERATIONS: dict[str, Operation] = {
    # memory: (address, offset in bytes)
    "load_i64": (i64, _LOAD, _load_integer(I64, True)),
    "load_i32": (i64, _LOAD, _load_integer(I32, True)),
    "load_u8": (i64, _LOAD, _load_integer(I8, False)),
    "load_i8": (i64, _LOAD, _load_integer(I8, True)),
    "load_f32": (f32, _LOAD, lambda e, a, o: e.load(F32, _offset(e, a, o))),
    "load_f16": (f32, _LOAD, lambda e, a, o: _one(e, e.from_f16, e.load(I16, _offset(e, a, o)))),
    "load_bf16": (f32, _LOAD, lambda e, a, o: _one(e, e.from_bf16, e.load(I16, _offset(e, a, o)))),
    "load_f32x8": (F32X8, _LOAD, lambda e, a, o: e.load(V8F, _offset(e, a, o))),
    "load_f16x8": (F32X8, _LOAD, lambda e, a, o: e.from_f16(e.load(V8H, _offset(e, a, o)))),
    "load_bf16x8": (F32X8, _LOAD, lambda e, a, o: e.from_bf16(e.load(V8H, _offset(e, a, o)))),
    "store_i64": (void, (*_LOAD, i64), _store_integer(I64)),
    "store_i32": (void, (*_LOAD, i64), _store_integer(I32)),
    "store_i8": (void, (*_LOAD, i64), _store_integer(I8)),
    "store_f32": (void, (*_LOAD, f32), lambda e, a, o, v: e.store(v, _offset(e, a, o))),
    "store_f16": (void, (*_LOAD, f32), lambda e, a, o, v: e.store(_one(e, e.to_f16, v), _offset(e, a, o))),
    "store_f32x8": (void, (*_LOAD, F32X8), lambda e, a, o, v: e.store(v, _offset(e, a, o))),
    "store_f16x8": (void, (*_LOAD, F32X8), lambda e, a, o, v: e.store(e.to_f16(v), _offset(e, a, o))),
    "prefetch": (void, _LOAD, lambda e, a, o: e.prefetch(_offset(e, a, o))),
    # f32x8
    "zero_f32x8": (F32X8, (), lambda e: e.constant(V8F, 0.0)),
    "splat_f32x8": (F32X8, (f32,), lambda e, x: e.splat(x)),
    "add_f32x8": (F32X8, _BINARY, lambda e, a, b: e.b.fadd(a, b)),
    "sub_f32x8": (F32X8, _BINARY, lambda e, a, b: e.b.fsub(a, b)),
    "mul_f32x8": (F32X8, _BINARY, lambda e, a, b: e.b.fmul(a, b)),
    "div_f32x8": (F32X8, _BINARY, lambda e, a, b: e.b.fdiv(a, b)),
    "fma_f32x8": (F32X8, (F32X8, F32X8, F32X8), lambda e, a, b, c: e.fma(a, b, c)),
    "larger_f32x8": (F32X8, _BINARY, lambda e, a, b: e.larger(a, b)),
    "smaller_f32x8": (F32X8, _BINARY, lambda e, a, b: e.smaller(a, b)),
    "exp_f32x8": (F32X8, _UNARY, lambda e, a: e.exp(a)),
    "hsum_f32x8": (f32, _UNARY, lambda e, a: e.fold(a, e.b.fadd)),
    "first_f32x8": (f32, _UNARY, lambda e, a: e.lane(a, 0)),
    "lane_f32x8": (f32, (F32X8, i64), lambda e, a, i: e.b.extract_element(a, e.b.trunc(i, I32))),
    # threads: int64 cells, 8-byte aligned
    "atomic_add": (i64, (i64, i64), lambda e, a, v: e.b.atomic_rmw("add", _pointer(e, a), v, "seq_cst")),  # the old value
    "atomic_load": (i64, (i64,), lambda e, a: e.b.load_atomic(_pointer(e, a), "acquire", 8)),
    "atomic_store": (void, (i64, i64), lambda e, a, v: e.b.store_atomic(v, _pointer(e, a), "release", 8)),
    "pause": (void, (), lambda e: e.pause()),
    "sched_yield": (void, (), lambda e: e.call(YIELD_SYMBOL, I32)),
    "call_kernel": (void, (i64, i64, i64, i64), _call_kernel),  # (address, record, thread, threads)
}
