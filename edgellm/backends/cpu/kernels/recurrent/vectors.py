"""The widest vectors of f32 that an ISA level sums floats in, as Numba functions: a lane's value does not depend on the width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any  # what a Numba function is to the type checker

from numba import types

from edgellm.backends.cpu.simd import Isa, Vec
from edgellm.backends.cpu.simd.base import F32, vector

i64, f32, void = types.int64, types.float32, types.void


@dataclass(frozen=True, slots=True)
class Vectors:
    """`nbytes` of a vector; load(address, offset), store(address, offset, x), splat(x), zero(), sub, mul, fma(a, b, c)."""

    nbytes: int
    load: Any
    store: Any
    splat: Any
    zero: Any
    sub: Any
    mul: Any
    fma: Any


def widest(isa: Isa) -> Vectors:
    """Of `float_lanes`."""
    lanes = isa.level.lanes
    kind, each = vector(F32, lanes), Vec("f32", lanes)
    return Vectors(
        4 * lanes,
        isa.make("load_wide", each, (i64, i64), lambda e, at, offset: e.load(kind, e.b.add(at, offset))),
        isa.make("store_wide", void, (i64, i64, each), lambda e, at, offset, x: e.store(x, e.b.add(at, offset))),
        isa.make("splat_wide", each, (f32,), lambda e, x: e.splat(x, lanes)),
        isa.make("zero_wide", each, (), lambda e: e.constant(kind, 0.0)),
        isa.make("sub_wide", each, (each, each), lambda e, a, b: e.b.fsub(a, b)),
        isa.make("mul_wide", each, (each, each), lambda e, a, b: e.b.fmul(a, b)),
        isa.make("fma_wide", each, (each, each, each), lambda e, a, b, c: e.fma(a, b, c)),
    )
