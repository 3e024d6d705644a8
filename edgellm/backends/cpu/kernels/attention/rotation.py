"""Rotation by Hadamard matrices, which spreads outliers before keys and values are rounded; rotating twice gives the input back.

A row goes in pieces of 32 values; of what is left 16, then 8 go together, and fewer than 8 stay as they are. Queries are rotated as
keys are, which leaves scores what they were, and the result of attention is rotated back (QuaRot, Ashkboos et al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # what a Numba function and an IR value are to the type checker

from numba import types

from edgellm.backends.cpu.kernels.inline import outline
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.generic import V8F, Generic

LANES, PIECE = 8, 32


def rotate(isa: Isa) -> Any:
    """rotate(row, dim): a row of f32, in place."""
    full, half, quarter = (
        isa.make(f"rotate_{n}", types.void, (types.int64,), lambda e, row, n=n: _piece(e, row, n)) for n in (32, 16, 8)
    )

    @outline
    def rotate(row, dim):
        for piece in range(dim // PIECE):
            full(row + piece * PIECE * 4)
        row += dim // PIECE * PIECE * 4
        if dim & 16:
            half(row)
            row += 64
        if dim & 8:
            quarter(row)

    return rotate


def _piece(e: Generic, row: Any, n: int) -> None:
    vectors = [e.load(V8F, row, 4 * at) for at in range(0, n, LANES)]
    size = e.constant(V8F, n**-0.5)
    for place, x in enumerate(_hadamard(e, vectors)):
        e.store(e.b.fmul(x, size), row, 32 * place)


def _hadamard(e: Generic, vectors: Sequence[Any]) -> Sequence[Any]:
    """Sums and differences over all pairs of places that differ in one bit, bit after bit."""
    for bit in (1, 2, 4):
        signs = e.constant(V8F, [-1.0 if lane & bit else 1.0 for lane in range(LANES)])
        vectors = [e.fma(x, signs, e.pick(x, [lane ^ bit for lane in range(LANES)])) for x in vectors]
    bit = 1
    while bit < len(vectors):
        vectors = [e.b.fsub(vectors[i ^ bit], x) if i & bit else e.b.fadd(x, vectors[i ^ bit]) for i, x in enumerate(vectors)]
        bit *= 2
    return vectors
