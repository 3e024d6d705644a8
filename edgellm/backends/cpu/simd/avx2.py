"""The AVX2 ISA level (with FMA and F16C): byte products in pairs, shuffles as tables, conversions and fma in hardware."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

from llvmlite import binding, ir

from edgellm.backends.cpu.levels import LEVELS, Level
from edgellm.backends.cpu.simd.base import I8, I16, vector
from edgellm.backends.cpu.simd.generic import V8I, V32B, Load, WithFloats

V16H = vector(I16, 16)
binding.initialize_native_asmparser()  # for `_kept_add`


class Avx2(WithFloats):
    """vpmaddubsw adds two products of u8 x i8 to a saturating i16, hence the care about the largest quant."""

    level: ClassVar[Level] = LEVELS["avx2"]

    def fma_in_order(self, a: Any, b: Any, c: Any) -> Any:
        kind = ir.FunctionType(a.type, [a.type, a.type, a.type])
        return self.b.asm(kind, "vfmadd231ps $2, $1, $0", "=v,v,v,0", [a, b, c], True)

    def dot(self, pairs: Sequence[tuple[Any, Any]], signed: bool, most: int, start: Any = None) -> Any:
        if signed:  # |w| * (x with the sign of w): the products are the same
            pairs = [(self.magnitude(w), self.signed_by(x, w)) for w, x in pairs]
        together = self._together(signed, most)
        total = start
        for first in range(0, len(pairs), together):
            sums = None
            for w, x in pairs[first : first + together]:
                product = self.call("llvm.x86.avx2.pmadd.ub.sw", V16H, w, x)
                sums = product if sums is None else self.b.add(sums, product)
            fours = self.call("llvm.x86.avx2.pmadd.wd", V8I, sums, self.constant(V16H, 1))
            total = fours if total is None else self.b.add(total, fours)
        return total

    def dot_int16(self, pairs: Sequence[tuple[Any, Any]], start: Any) -> Any:
        return functools.reduce(self.b.add, [self.call("llvm.x86.avx2.pmadd.wd", V8I, w, x) for w, x in pairs], start)

    def pair_products(self, w: Any, x: Any) -> Any:
        return self.call("llvm.x86.avx2.pmadd.ub.sw", V16H, w, x)

    def fours_of_pairs(self, sums: Any) -> Any:
        return self.call("llvm.x86.avx2.pmadd.wd", V8I, sums, self.constant(V16H, 1))

    def dots(
        self, weights: Sequence[Load], columns: Sequence[Sequence[Load]], signed: bool, most: int, starts: Sequence[Any]
    ) -> list[Any]:
        return self.dots_of_groups([weights], columns, signed, most, [starts])[0]

    def dots_of_groups(
        self,
        groups: Sequence[Sequence[Load]],
        columns: Sequence[Sequence[Load]],
        signed: bool,
        most: int,
        starts: Sequence[Sequence[Any]],
    ) -> list[list[Any]]:
        """One vector of weights of each group after the other by all columns: their sums stay in sixteen registers, the weights
        need not. Signed quants w come `parted`; each x is turned to ~x where w < 0, on any port (vpsignb would be a third of all
        work for two ports): |w| * ~x is one |w| less than w * x, which `starts` have from `negatives`.
        """
        together, last = self._together(signed, most), len(columns[0]) - 1
        totals: list[list[Any]] = [list(each) for each in starts]
        sums: list[list[Any]] = [[None] * len(columns) for _ in groups]
        for g in range(last + 1):
            weights = [group[g]() for group in groups]
            full = (g + 1) % together == 0 or g == last
            for c, x in enumerate(columns):
                quants = x[g]()
                for r, w in enumerate(weights):
                    size, value = (w[0], self.b.xor(quants, w[1])) if signed else (w, quants)
                    product = self.call("llvm.x86.avx2.pmadd.ub.sw", V16H, size, value)
                    sums[r][c] = product if sums[r][c] is None else self._kept_add("w", sums[r][c], product)
                    if full:
                        fours = self.call("llvm.x86.avx2.pmadd.wd", V8I, sums[r][c], self.constant(V16H, 1))
                        totals[r][c] = fours if totals[r][c] is None else self._kept_add("d", totals[r][c], fours)
                        sums[r][c] = None
        return totals

    def negatives(self, weights: Sequence[Any]) -> Any:
        total = None
        for w in weights:
            twos = self.call("llvm.x86.avx2.pmadd.ub.sw", V16H, self.magnitude(w), self._negative(w))
            total = twos if total is None else self.b.add(total, twos)
        return self.call("llvm.x86.avx2.pmadd.wd", V8I, total, self.constant(V16H, -1))

    def parted(self, w: Any) -> tuple[Any, Any]:
        """Sizes of signed quants, and masks of the negative ones."""
        return self.magnitude(w), self._negative(w)

    def _negative(self, w: Any) -> Any:
        return self.b.sext(self.b.icmp_signed("<", w, 0), w.type)

    @staticmethod
    def _together(signed: bool, most: int) -> int:
        """Products that one i16 lane can hold the sum of."""
        return max(1, 32767 // (2 * (128 if signed else 127) * most))

    def _kept_add(self, size: str, a: Any, b: Any) -> Any:
        """a + b, where it is written: LLVM would make trees of sums, or take columns one by one, and run out of registers."""
        return self.b.asm(ir.FunctionType(a.type, [a.type, a.type]), f"vpadd{size} $2, $1, $0", "=x,x,x", [a, b], True)

    def magnitude(self, w: Any) -> Any:
        """|w|; -128 becomes the unsigned 128."""
        zero = self.constant(w.type, 0)
        return self.b.select(self.b.icmp_signed("<", w, zero), self.b.sub(zero, w), w)

    def opaque(self, value: Any) -> Any:
        return self.b.asm(ir.FunctionType(value.type, [value.type]), "", "=x,0", [value], False)

    def negated(self, x: Any, negative: Any) -> Any:
        if x.type.count != 32:
            return super().negated(x, negative)
        return self.signed_by(x, self.b.or_(self.b.sext(negative, x.type), 1))

    def signed_by(self, x: Any, w: Any) -> Any:
        return self.call("llvm.x86.avx2.psign.b", V32B, x, w)

    def lookup(self, table: Sequence[int], index: Any) -> Any:
        return self.lookup_near(self.constant(vector(I8, 32), [*table, *table]), index)

    def lookup_near(self, table: Any, index: Any) -> Any:
        return self.call("llvm.x86.avx2.pshuf.b", V32B, table, index)
