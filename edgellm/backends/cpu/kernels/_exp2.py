"""2^x of eight values, for decays: half the work of the rungs' exp, as what is far from 1 need not be told from 0 or infinity."""
from __future__ import annotations

from typing import Any  # what an IR value and a Numba function are to the type checker

from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import F32X8, I32, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic

V8I = vector(I32, 8)
LEAST, MOST = -126.0, 127.0                      # what x is held between
MAGIC = 1.5 * 2**23 + 127                        # added to x, it leaves the exponent of 2^round(x) in the last bits
# 2^r = 1 + r p(r) within 2e-9 on [-1/2, 1/2], the highest power first; found by weighted least squares.
FACTORS = (1.5353361919304901e-4, 1.3398874414425194e-3, 9.61843735764047e-3, 5.550332471125091e-2, 2.4022647913629025e-1,
           6.931472028550666e-1)


def build(isa: Isa) -> Any:
    """2^x to about one unit in the last place; NaN stays."""
    return isa.make("exp2", F32X8, (F32X8,), _exp2)


def _exp2(e: Generic, x: Any) -> Any:
    b = e.b
    x = e.smaller(e.constant(V8F, MOST), e.larger(e.constant(V8F, LEAST), x))
    shifted = b.fadd(x, e.constant(V8F, MAGIC))
    r = b.fsub(x, b.fsub(shifted, e.constant(V8F, MAGIC)))
    p = e.constant(V8F, FACTORS[0])
    for factor in (*FACTORS[1:], 1.0):
        p = e.fma(p, r, e.constant(V8F, factor))
    return b.fmul(p, e.cast(b.shl(e.cast(shifted, V8I), e.constant(V8I, 23)), V8F))
