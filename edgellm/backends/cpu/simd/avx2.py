"""The AVX2 rung (with FMA and F16C): byte products in pairs, shuffles as tables, conversions and fma in hardware."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from edgellm.backends.cpu.simd.base import F16, F32, I8, I16, vector
from edgellm.backends.cpu.simd.generic import V8I, V32B, Generic

V16H = vector(I16, 16)


class Avx2(Generic):
    """vpmaddubsw adds two products of u8 x i8 to a saturating i16, hence the care about the largest code."""

    name: ClassVar[str] = "avx2"

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call(f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)

    def from_f16(self, h: Any) -> Any:
        return self.b.fpext(self.cast(h, vector(F16, h.type.count)), vector(F32, h.type.count))

    def to_f16(self, x: Any) -> Any:
        return self.cast(self.b.fptrunc(x, vector(F16, x.type.count)), vector(I16, x.type.count))

    def dot(self, pairs: Sequence[tuple[Any, Any]], signed: bool, most: int) -> Any:
        if signed:                               # |w| * (x with the sign of w): the products are the same
            pairs = [(self.magnitude(w), self.signed_by(x, w)) for w, x in pairs]
            most = 128
        together = max(1, 32767 // (2 * 127 * most))         # products that one i16 lane can hold
        total = None
        for first in range(0, len(pairs), together):
            sums = None
            for w, x in pairs[first : first + together]:
                product = self.call("llvm.x86.avx2.pmadd.ub.sw", V16H, w, x)
                sums = product if sums is None else self.b.add(sums, product)
            fours = self.call("llvm.x86.avx2.pmadd.wd", V8I, sums, self.constant(V16H, 1))
            total = fours if total is None else self.b.add(total, fours)
        return total

    def magnitude(self, w: Any) -> Any:
        """|w|; -128 becomes the unsigned 128."""
        zero = self.constant(w.type, 0)
        return self.b.select(self.b.icmp_signed("<", w, zero), self.b.sub(zero, w), w)

    def signed_by(self, x: Any, w: Any) -> Any:
        return self.call("llvm.x86.avx2.psign.b", V32B, x, w)

    def lookup(self, table: Sequence[int], index: Any) -> Any:
        return self.call("llvm.x86.avx2.pshuf.b", V32B, self.constant(vector(I8, 32), [*table, *table]), index)


