"""How a product's results are stored, as IR, for all kernels with the record of a matmul."""
from __future__ import annotations

from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.words import MATMUL


def put(e: Generic, y: Any, record: Any, row: Any, column: Any) -> None:
    """Store y (f32 of a weight row, or f32x8 of eight rows from `row` on) of one column as (y + bias) + residual."""
    def word(name: str) -> Any:
        return e.load(I64, record, MATMUL.at(name))

    def cell(base: Any, stride: Any) -> Any:
        return e.b.add(e.b.add(base, e.b.mul(row, I64(4))), e.b.mul(column, stride))

    value = cgutils.alloca_once_value(e.b, y)
    for base, stride in ((word("bias"), I64(0)), (word("residual"), word("residual_stride"))):
        with e.b.if_then(e.b.icmp_signed("!=", base, I64(0))):
            e.b.store(e.b.fadd(e.b.load(value), e.load(y.type, cell(base, stride))), value)
    e.store(e.b.load(value), cell(word("out"), word("out_stride")))
