"""2^x of eight values, for decays: half the work of the ISA levels' exp, since far from 1 it may return 0 or infinity."""

from __future__ import annotations

from typing import Any  # what an IR value and a Numba function are to the type checker

from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import F32X8, I32, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic

V8I = vector(I32, 8)
LEAST, MOST = -126.0, 127.0  # what x is held between
MAGIC = 1.5 * 2**23 + 127  # added to x, it leaves the exponent of 2^round(x) in the last bits
# 2^r = 1 + r p(r) within 2e-9 on [-1/2, 1/2], the highest power first; found by weighted least squares.
FACTORS = (
    1.5353361919304901e-4,
    1.3398874414425194e-3,
    9.61843735764047e-3,
    5.550332471125091e-2,
    2.4022647913629025e-1,
    6.931472028550666e-1,
)


def exp2_of(isa: Isa) -> Any:
    """2^x to about one unit in the last place; NaN stays."""
    return isa.make("exp2", F32X8, (F32X8,), _exp2)


def _exp2(e: Generic, x: Any) -> Any:
    return side_by_side(e, x)[0]


def side_by_side(e: Generic, *given: Any) -> list[Any]:
    """2^x of several vectors, operation by operation: one vector after the other, each would wait for its own operations."""
    b, magic = e.b, e.constant(V8F, MAGIC)
    xs = [e.smaller(e.constant(V8F, MOST), e.larger(e.constant(V8F, LEAST), x)) for x in given]
    shifted = [b.fadd(x, magic) for x in xs]
    rounded = [b.fsub(each, magic) for each in shifted]
    rests = [b.fsub(x, each) for x, each in zip(xs, rounded, strict=True)]
    powers = [e.constant(V8F, FACTORS[0])] * len(xs)
    for factor in (*FACTORS[1:], 1.0):
        powers = [e.fma(p, r, e.constant(V8F, factor)) for p, r in zip(powers, rests, strict=True)]
    scales = [e.cast(b.shl(e.cast(each, V8I), 23), V8F) for each in shifted]
    return [b.fmul(p, scale) for p, scale in zip(powers, scales, strict=True)]
