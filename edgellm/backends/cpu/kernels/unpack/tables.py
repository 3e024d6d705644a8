"""Constant tables in a kernel's object code, and numbers that pass through memory on their way from a vector to addresses."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.simd.base import I16, I64, Value
from edgellm.backends.cpu.simd.generic import Generic


def table(e: Generic, name: str, entries: Sequence[int], bits: int) -> Value:
    """The address (i64) of a constant array of unsigned integers; made once per module."""
    module = e.b.module
    if name not in module.globals:
        element = ir.IntType(bits)
        array = ir.ArrayType(element, len(entries))
        variable = ir.GlobalVariable(module, array, name)
        variable.linkage, variable.global_constant, variable.align = "internal", True, 64
        variable.initializer = ir.Constant(array, [ir.Constant(element, entry) for entry in entries])
    return e.b.ptrtoint(module.globals[name], I64)


class Numbers:
    """16-bit numbers in memory, to be read one by one: one load each, where extracting lanes from vectors takes two or more."""

    def __init__(self, e: Generic, address: Value) -> None:
        self.e, self.address = e, address

    def __call__(self, index: int) -> Value:
        return self.e.b.zext(self.e.load(I16, self.address, 2 * index), I64)


def room(e: Generic, size: int) -> Value:
    """The address of `size` bytes on the stack."""
    return e.b.ptrtoint(cgutils.alloca_once(e.b, ir.ArrayType(I16, size // 2)), I64)


def hidden(e: Generic, address: Value) -> Value:
    """The same address, of which LLVM does not know what has been stored there."""
    return e.b.asm(ir.FunctionType(I64, [I64]), "", "=r,0,~{memory}", [address], True)


def put(e: Generic, vectors: Sequence[Value], address: Value) -> None:
    """Vectors of 16-bit numbers to memory, side by side."""
    offset = 0
    for value in vectors:
        e.store(value, address, offset)
        offset += value.type.count * 2
