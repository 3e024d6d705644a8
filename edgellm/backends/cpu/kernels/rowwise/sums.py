"""Sums of a row's values and of their squares."""

from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa


def row_sums(isa: Isa) -> tuple[Any, Any]:
    """`total` and `squares`."""
    load_f32, load, fma, add, sub = isa("load_f32 load_f32x8 fma_f32x8 add_f32x8 sub_f32x8")
    splat, zero, hsum = isa("splat_f32x8 zero_f32x8 hsum_f32x8")

    @inline
    def total(x, n):
        """Sum of n values: four lanes of eight, then the rest."""
        a, b, c, d = zero(), zero(), zero(), zero()
        j = 0
        while j + 32 <= n:
            a, b = add(a, load(x, j * 4)), add(b, load(x, j * 4 + 32))
            c, d = add(c, load(x, j * 4 + 64)), add(d, load(x, j * 4 + 96))
            j += 32
        s = hsum(add(add(a, b), add(c, d)))
        while j < n:
            s += load_f32(x, j * 4)
            j += 1
        return s

    @inline
    def squares(x, n, centre):
        """Sum of (x - centre)^2."""
        m = splat(centre)
        a, b, c, d = zero(), zero(), zero(), zero()
        j = 0
        while j + 32 <= n:
            u, v = sub(load(x, j * 4), m), sub(load(x, j * 4 + 32), m)
            w, y = sub(load(x, j * 4 + 64), m), sub(load(x, j * 4 + 96), m)
            a, b, c, d = fma(u, u, a), fma(v, v, b), fma(w, w, c), fma(y, y, d)
            j += 32
        s = hsum(add(add(a, b), add(c, d)))
        while j < n:
            t = load_f32(x, j * 4) - centre
            s += t * t
            j += 1
        return s

    return total, squares
