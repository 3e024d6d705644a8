"""Loops over the values of a row that several kernels share."""

from __future__ import annotations

from typing import Any  # what a Numba function is to the type checker

import numpy as np

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa


def product_of(isa: Isa) -> Any:
    """product(x, y, n): the sum over products of values."""
    load_f32, load, fma, zero, hsum = isa("load_f32 load_f32x8 fma_f32x8 zero_f32x8 hsum_f32x8")

    @inline
    def product(x, y, n):
        total = zero()
        j = 0
        while j + 8 <= n:
            total = fma(load(x, j * 4), load(y, j * 4), total)
            j += 8
        found = hsum(total)
        while j < n:
            found += load_f32(x, j * 4) * load_f32(y, j * 4)
            j += 1
        return found

    return product


def scaled_of(isa: Isa) -> Any:
    """scaled(source, target, first, end, factor): values `first` to `end` times a factor."""
    load_f32, store_f32, load, store = isa("load_f32 store_f32 load_f32x8 store_f32x8")
    mul, splat = isa("mul_f32x8 splat_f32x8")

    @inline
    def scaled(source, target, first, end, factor):
        j = first
        while j + 8 <= end:
            store(target, j * 4, mul(load(source, j * 4), splat(factor)))
            j += 8
        while j < end:
            store_f32(target, j * 4, np.float32(load_f32(source, j * 4) * factor))
            j += 1

    return scaled
