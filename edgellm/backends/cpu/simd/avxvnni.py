"""The AVX-VNNI ISA level: four u8 x i8 products straight into an i32 lane of 256-bit vectors, with no saturation between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from edgellm.backends.cpu.levels import LEVELS, Level
from edgellm.backends.cpu.simd.avx2 import Avx2
from edgellm.backends.cpu.simd.base import I32, vector
from edgellm.backends.cpu.simd.generic import V8I, Load


class AvxVnni(Avx2):
    """Quants use all of u8, so that signed ones are better offset by 128 (`wide_quants`) than taken apart by sign."""

    level: ClassVar[Level] = LEVELS["avxvnni"]

    def dot(self, pairs: Sequence[tuple[Any, Any]], signed: bool, most: int, start: Any = None) -> Any:
        lanes = pairs[0][0].type.count // 4
        kind = vector(I32, lanes)
        total = self.constant(kind, 0) if start is None else start
        for w, x in pairs:
            if signed:
                w, x = self.magnitude(w), self.signed_by(x, w)
            # The name is the same with and without AVX-512, LLVM picks the encoding. Arguments are as LLVM knew them before 22;
            # later ones take bytes, and translate this form.
            name = f"llvm.x86.avx512.vpdpbusd.{lanes * 32}"
            total = self.call(name, kind, total, self.cast(w, kind), self.cast(x, kind))
        return total

    def dot_int16(self, pairs: Sequence[tuple[Any, Any]], start: Any) -> Any:
        for w, x in pairs:
            start = self.call("llvm.x86.avx512.vpdpwssd.256", V8I, start, self.cast(w, V8I), self.cast(x, V8I))
        return start

    def dots(
        self, weights: Sequence[Load], columns: Sequence[Sequence[Load]], signed: bool, most: int, starts: Sequence[Any]
    ) -> list[Any]:
        totals = list(starts)
        for g, load in enumerate(weights):
            w = load()
            totals = [self.dot([(w, x[g]())], signed, most, total) for x, total in zip(columns, totals, strict=True)]
        return totals
