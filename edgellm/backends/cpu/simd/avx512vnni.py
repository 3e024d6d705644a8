"""The AVX-512 VNNI ISA level: quants and tiles in 512-bit vectors, activations as memory operands that the processor broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from llvmlite import ir

from edgellm.backends.cpu.levels import LEVELS, Level
from edgellm.backends.cpu.simd.avxvnni import AvxVnni
from edgellm.backends.cpu.simd.base import I1, I8, I16, I32, vector
from edgellm.backends.cpu.simd.generic import Blocks, Generic, Load

V64B, V32H, V16I = vector(I8, 64), vector(I16, 32), vector(I32, 16)
LINE = 64
NARROW_ROWS = ("TQ1_0", "TQ2_0", "IQ1_S", "IQ1_M")  # opening four parts of them takes longer than two and two


class Avx512Vnni(AvxVnni):
    """Needs no VBMI, which the first processors with VNNI lack."""

    level: ClassVar[Level] = LEVELS["avx512vnni"]

    def of_one_row(self) -> AvxVnni:
        return AvxVnni(self.b)

    def of_row(self, name: str) -> Generic:
        return self.of_one_row() if name in NARROW_ROWS else super().of_row(name)

    def opaque(self, value: Any) -> Any:
        kind = ir.FunctionType(value.type, [value.type])
        return self.b.asm(kind, "", "=v,0", [value], False)

    def upper_half(self) -> Any:
        """i1x16, the last eight set, of which LLVM does not know: a mask may be part of a load, an insertion is a shuffle."""
        return self.cast(self.b.asm(ir.FunctionType(I16, [I16]), "", "=r,0", [I16(-256)], False), vector(I1, 16))

    def _from_pieces(self, address: Any, offset: int, pieces: Sequence[int]) -> Any:
        lanes = [16 * piece + i for piece in pieces for i in range(16)]
        return self.pick(self.load(V64B, address, offset), lanes)

    def each_sixteen(self, block: Blocks, few: Sequence[int], offset: int) -> Any:
        if block.stride is None or block.stride % 2 or offset % 2:
            return super().each_sixteen(block, few, offset)
        places = [block.stride * j + offset + i for j in few for i in range(0, 16, 2)]
        return self.cast(self._gathered(block, places), V64B)

    def each_four(self, block: Blocks, few: Sequence[int], offset: int) -> Any:
        if block.stride is None or block.stride % 2 or offset % 2:
            return super().each_four(block, few, offset)
        return self.cast(self._gathered(block, [block.stride * j + offset + i for j in few for i in (0, 2) * 4]), V64B)

    def each_word(self, block: Blocks, offset: int, words: int) -> Any:
        if block.stride is None or block.stride % 2:
            return super().each_word(block, offset, words)
        return self._gathered(block, [block.stride * j + offset + 2 * word for word in range(words) for j in range(8)])

    def _gathered(self, block: Blocks, places: Sequence[int]) -> Any:
        """16-bit words at constant places (in bytes) of a superblock, by two-source permutes of pairs of 64-byte loads, which all
        calls for a superblock share.
        """
        assert block.stride is not None
        starts = sorted({min(place // LINE * LINE, block.stride * 8 - LINE) for place in places})
        result = None
        for pair in (starts[i : i + 2] for i in range(0, len(starts), 2)):
            sources = [next((i for i, start in enumerate(pair) if 0 <= place - start < LINE), None) for place in places]
            index = [0 if i is None else i * 32 + (place - pair[i]) // 2 for i, place in zip(sources, places, strict=True)]
            mine = [i is not None for i in sources]
            rest = 32 - len(places)
            a, b = (self.load(V32H, block(0), pair[i]) for i in (0, -1))
            here = self.call("llvm.x86.avx512.vpermi2var.hi.512", V32H, a, self.constant(V32H, index + [0] * rest), b)
            result = here if result is None else self.b.select(self.constant(vector(I1, 32), mine + [True] * rest), here, result)
        return result if len(places) == 32 else self.pick(result, range(len(places)))

    def dwords(self, address: Any, offset: int, size: int, places: Sequence[int]) -> Any:
        lines = [self.load(V16I, address, offset + line) for line in range(0, size, LINE)]
        index = self.constant(V16I, [place // 4 for place in places])
        return self.call("llvm.x86.avx512.vpermi2var.d.512", V16I, lines[0], index, lines[-1])

    def times_power(self, p: Any, n: Any, n_bits: Any, *, rises: bool = True) -> Any:
        if p.type.count == 8:
            return self.call("llvm.x86.avx512.mask.scalef.ps.256", p.type, p, n, p, I8(-1))
        if p.type.count == 16:
            return self.call("llvm.x86.avx512.mask.scalef.ps.512", p.type, p, n, p, I16(-1), I32(4))
        half = p.type.count // 2
        parts = ([self.pick(each, range(first, first + half)) for each in (p, n, n_bits)] for first in (0, half))
        return self.join(*(self.times_power(*part) for part in parts))

    def pick_in_one(self, a: Any, lanes: Sequence[int]) -> Any:
        kind = ir.FunctionType(a.type, [a.type, a.type])
        index = self.constant(a.type, [*lanes] + [0] * (a.type.count - len(lanes)))
        return self.pick(self.b.asm(kind, "vpermd $2, $1, $0", "=v,v,v", [index, a], False), range(len(lanes)))

    def dot_int16(self, pairs: Sequence[tuple[Any, Any]], start: Any) -> Any:
        if start.type.count == 8:
            return super().dot_int16(pairs, start)
        for w, x in pairs:
            start = self.call("llvm.x86.avx512.vpdpwssd.512", V16I, start, self.cast(w, V16I), self.cast(x, V16I))
        return start

    def dots(
        self, weights: Sequence[Load], columns: Sequence[Sequence[Load]], signed: bool, most: int, starts: Sequence[Any]
    ) -> list[Any]:
        """All weights of a block stay in registers, one column after the other passes."""
        return Generic.dots(self, weights, columns, signed, most, starts)

    def lookup(self, table: Sequence[int], index: Any) -> Any:
        if index.type.count == 32:
            return super().lookup(table, index)
        return self.lookup_near(self.constant(V64B, [*table] * 4), index)

    def lookup_near(self, table: Any, index: Any) -> Any:
        if index.type.count == 32:
            return super().lookup_near(table, index)
        return self.call("llvm.x86.avx512.pshuf.b.512", V64B, table, index)
