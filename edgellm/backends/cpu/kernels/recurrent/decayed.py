"""States that stand in memory divided by a factor, which takes the decays until it is small: nothing is multiplied at every token.

The factor is part of the state, so the pieces in which a prompt comes change no bit.
"""

from __future__ import annotations

from typing import Any  # what an IR value and a Numba function are to the type checker

import numpy as np
from numba import types
from numba.core import cgutils

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.base import F32, I64, vector
from edgellm.backends.cpu.simd.generic import Generic

ONE = np.float32(1.0)
LEAST = np.float32(2.0**-40)  # of a factor that is kept


@inline
def split(factor):
    """(what states are multiplied with now, their factor then): (1, factor), or (factor, 1) where it is small or above 1."""
    if LEAST <= factor <= ONE:
        return ONE, factor
    return factor, ONE


def kept(isa: Isa) -> Any:
    """(before, after, bytes, factor) -> where the states are that the factor, returned besides, belongs to.

    Those before a token where the factor is neither small nor above 1; else those after it, multiplied by it, and 1.
    """
    load, store, splat, mul = isa("load_f32x8 store_f32x8 splat_f32x8 mul_f32x8")

    @inline
    def kept(before, after, nbytes, factor):
        by, rest = split(factor)
        if by == ONE:
            return before, rest
        for i in range(0, nbytes, 32):
            store(after, i, mul(load(before, i), splat(by)))
        return after, rest

    return kept


def stack(isa: Isa, floats: int) -> Any:
    """A Numba function that gives the address of so many f32 of its caller's own."""

    def emit(e: Generic, *_: Any) -> Any:
        return e.b.ptrtoint(cgutils.alloca_once(e.b, vector(F32, floats)), I64)

    return isa.make("stack", types.int64, (), emit)
