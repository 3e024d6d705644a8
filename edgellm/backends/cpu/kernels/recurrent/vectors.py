"""Vectors of f32 as Numba functions, as wide as an ISA level sums floats in or narrower: the width changes no value."""

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


def of_lanes(isa: Isa, lanes: int) -> Vectors:
    kind, each = vector(F32, lanes), Vec("f32", lanes)
    return Vectors(
        4 * lanes,
        isa.make(f"load_{lanes}", each, (i64, i64), lambda e, at, offset: e.load(kind, e.b.add(at, offset))),
        isa.make(f"store_{lanes}", void, (i64, i64, each), lambda e, at, offset, x: e.store(x, e.b.add(at, offset))),
        isa.make(f"splat_{lanes}", each, (f32,), lambda e, x: e.splat(x, lanes)),
        isa.make(f"zero_{lanes}", each, (), lambda e: e.constant(kind, 0.0)),
        isa.make(f"sub_{lanes}", each, (each, each), lambda e, a, b: e.b.fsub(a, b)),
        isa.make(f"mul_{lanes}", each, (each, each), lambda e, a, b: e.b.fmul(a, b)),
        isa.make(f"fma_{lanes}", each, (each, each, each), lambda e, a, b, c: e.fma(a, b, c)),
    )
