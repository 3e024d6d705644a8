"""A time stamp between two records: what has passed since the thread's last one is added to a slot of its log."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from edgellm.backends.cpu.profile import FIRST_SLOT, LAP, LAST
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.simd.generic import Generic


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, store_i64 = isa("load_i64 store_i64")
    clock = isa.make("clock", types.int64, (), _clock)
    arguments = LAP.reader(isa, "log slot")

    def lap(op, ith, nth):
        log, slot = arguments(op)
        now, at = clock(), (slot + FIRST_SLOT) * 8
        store_i64(log, at, load_i64(log, at) + now - load_i64(log, LAST * 8))
        store_i64(log, LAST * 8, now)

    return {"lap": lap}[variant]


def _clock(e: Generic) -> Any:
    """Ticks that all cores count alike. ARM's cycle counter is not for programs; its timer is."""
    if str(e.b.module.triple).startswith(("aarch64", "arm64")):
        return e.b.asm(ir.FunctionType(I64, []), "mrs $0, cntvct_el0", "=r", [], True)
    return e.call("llvm.readcyclecounter", I64)
