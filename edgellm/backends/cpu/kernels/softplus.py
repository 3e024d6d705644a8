"""log(1 + exp(x)) of eight values, which recurrent layers make their steps from."""

from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa


def softplus_of(isa: Isa) -> Any:
    """softplus(x) = max(x, 0) + log(1 + u) with u = exp(-|x|), and log(1 + u) = 2 atanh(z) with z = u / (2 + u) <= 1/3.

    The series z + z^3/3 + ... ends after z^15: what follows is below 1e-9.
    """
    add, sub, mul, div, fma = isa.add_f32x8, isa.sub_f32x8, isa.mul_f32x8, isa.div_f32x8, isa.fma_f32x8
    splat, exp, larger = isa.splat_f32x8, isa.exp_f32x8, isa.larger_f32x8
    c3, c5, c7, c9, c11, c13, c15 = (1 / power for power in range(3, 17, 2))

    @inline
    def softplus(x):
        zero = splat(0.0)
        u = exp(sub(zero, larger(x, sub(zero, x))))
        z = div(u, add(u, splat(2.0)))
        w = mul(z, z)
        p = fma(fma(fma(splat(c15), w, splat(c13)), w, splat(c11)), w, splat(c9))
        p = fma(fma(fma(p, w, splat(c7)), w, splat(c5)), w, splat(c3))
        return add(larger(x, zero), mul(fma(mul(p, w), z, z), splat(2.0)))

    return softplus
