"""Stores of what nobody reads soon: past the caches, so that lines are not read before they are written (x86 only)."""

from __future__ import annotations

from typing import Any  # what an IR value and a Numba function are to the type checker

from llvmlite import ir
from numba import types

from edgellm.backends.cpu.simd import F32X8, Isa
from edgellm.backends.cpu.simd.base import I32
from edgellm.backends.cpu.simd.generic import Generic

ALIGNMENT = 32  # of such a store


def store_past(isa: Isa) -> Any:
    """(address, offset, f32x8), at a multiple of ALIGNMENT: to be followed by `stored`."""

    def emit(e: Generic, address: Any, offset: Any, value: Any) -> None:
        to = e.b.inttoptr(e.b.add(address, offset), value.type.as_pointer())
        store = e.b.store(value, to, align=ALIGNMENT)
        if _is_x86(e):
            store.set_metadata("nontemporal", e.b.module.add_metadata([I32(1)]))

    return isa.make("store_past", types.void, (types.int64, types.int64, F32X8), emit)


def stored(isa: Isa) -> Any:
    """Nothing later comes before the stores."""

    def emit(e: Generic) -> None:
        if _is_x86(e):
            e.call("llvm.x86.sse.sfence", ir.VoidType())

    return isa.make("stored", types.void, (), emit)


def _is_x86(e: Generic) -> bool:
    return str(e.b.module.triple).startswith("x86_64")
