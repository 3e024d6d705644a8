"""The NEON ISA level (every AArch64 processor; Raspberry Pi 4): 128-bit vectors, byte products into i16, thirty-two registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from llvmlite import ir

from edgellm.backends.cpu.levels import LEVELS, Level
from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, Value, vector
from edgellm.backends.cpu.simd.generic import Blocks, WithFloats

V8B, V16B, V8H, V4I, V4F = vector(I8, 8), vector(I8, 16), vector(I16, 8), vector(I32, 4), vector(F32, 4)


class Neon(WithFloats):
    """A vector has the 16 quants of half a block. Quants are signed bytes, so unsigned ones go up to 127."""

    level: ClassVar[Level] = LEVELS["neon"]

    # --- lanes --------------------------------------------------------------------------------------------------------
    def pairs(self, a: Value, b: Value) -> Value:
        """Sums of neighbouring lanes of a, then of b."""
        lanes = a.type.count
        name = f"llvm.aarch64.neon.addp.v{lanes}i{128 // lanes}"
        return self.call(name, a.type, a, b)

    def totals(self, rows: Sequence[Value]) -> Value:
        """Four i32x4 to one: lane i is the sum of the lanes of row i."""
        a, b, c, d = rows
        return self.pairs(self.pairs(a, b), self.pairs(c, d))

    def split(self, value: Value, lanes: int) -> list[Value]:
        """Pieces of so many lanes."""
        count = value.type.count
        return [value] if count == lanes else [self.pick(value, range(i, i + lanes)) for i in range(0, count, lanes)]

    def split_tile(self, n_scales: int, n_mins: int, signed: bool) -> Sequence[int]:
        if self.level.dot == "i16" and (signed or n_scales > 1):  # more would spill
            return (2,) * 8 if n_mins else (3, 3, 3, 3, 2, 2)
        return self.level.tile_columns[n_scales + n_mins > 1]

    def plain(self, value: Value) -> Value:
        """The same vector or integer, of which LLVM does not know how it was made; costs no instruction."""
        register = "w" if isinstance(value.type, ir.VectorType) else "r"
        return self.b.asm(ir.FunctionType(value.type, [value.type]), "", f"={register},0", [value], False)

    def opaque(self, value: Value) -> Value:
        return self.join_all([self.plain(part) for part in self.split(value, 16)])

    def widen(self, quants: Value, signed: bool) -> Value:
        """i8x8 to f32x8 in five instructions."""
        return self.b.sitofp(self.widen_all(quants, signed), vector(F32, 8))

    def widen_all(self, quants: Value, signed: bool) -> Value:
        """i8x8 to i32x8 in three instructions. LLVM takes four tables for it in loops, and their registers from the sums."""
        wide = self.plain((self.b.sext if signed else self.b.zext)(quants, V8H))
        return self.b.sext(wide, vector(I32, 8))

    def done_here(self, values: Sequence[Value]) -> list[Value]:
        """The same values (vectors, addresses), computed where this is written and before what follows from them; costs no
        instruction. LLVM would take all blocks of a superblock at once, and run out of registers.
        """
        kinds = [value.type for value in values]
        result = kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
        registers = ["=w" if isinstance(kind, ir.VectorType) else "=r" for kind in kinds]
        constraint = ",".join([*registers, *map(str, range(len(kinds)))])
        both = self.b.asm(ir.FunctionType(result, kinds), "", constraint, list(values), True)
        return [both] if len(kinds) == 1 else [self.b.extract_value(both, i) for i in range(len(kinds))]

    # --- dot products of quants ----------------------------------------------------------------------------------------
    def dot(self, pairs: Sequence[tuple[Value, Value]], signed: bool, most: int, start: Value | None = None) -> Value:
        pieces = [(self.split(w, 16), self.split(x, 16)) for w, x in pairs]
        results = [self.dot_sixteens([(w[i], x[i]) for w, x in pieces], 128 if signed else most) for i in range(len(pieces[0][0]))]
        total = self.join_all(results)
        return total if start is None else self.b.add(total, start)

    def dot_sixteens(self, pairs: Sequence[tuple[Value, Value]], most: int, start: Value | None = None) -> Value:
        """start + the sum over pairs of i8x16 of products of neighbouring fours, as i32x4; quants are `most` at most in size."""
        total = start
        for low, high in self._product_sums(pairs, most, apart=True):
            fours = self.pairs(self._widened(low), self._widened(high))
            total = fours if total is None else self.b.add(total, fours)
        return total

    def dot_anyhow(self, pairs: Sequence[tuple[Value, Value]], most: int, start: Value | None = None) -> Value:
        """Like `dot_sixteens` where only the sum of all lanes is wanted."""
        total = start
        for (sums,) in self._product_sums(pairs, most, apart=False):
            fours = self._widened(sums)
            total = fours if total is None else self.b.add(total, fours)
        return total

    def products_at_once(self, most: int) -> int:
        """The number of products of a quant of that size that fit an i16."""
        return max(1, 32767 // (127 * most))

    def _product_sums(self, pairs: Sequence[tuple[Value, Value]], most: int, apart: bool) -> list[list[Value]]:
        """i16x8 sums of products, as many as fit: of the vectors' lower and upper halves, `apart` or together."""
        at_once = self.products_at_once(most) if apart else max(1, 32767 // (127 * most) // 2)
        assert at_once * 127 * most * (1 if apart else 2) <= 32767
        result = []
        for first in range(0, len(pairs), at_once):
            sums: list[Value] = []
            for w, x in pairs[first : first + at_once]:
                wide = [
                    self.b.mul(self.b.sext(p, V8H), self.b.sext(q, V8H))
                    for p, q in zip(self.split(w, 8), self.split(x, 8), strict=True)
                ]
                sums = [self.b.add(a, b) for a, b in zip(sums, wide, strict=False)] if sums and apart else [*sums, *wide]
                if not apart:
                    total = sums[0]
                    for each in sums[1:]:
                        total = self.b.add(total, each)
                    sums = [total]
            result.append(sums)
        return result

    def _widened(self, sums: Value) -> Value:
        """Neighbouring pairs of i16 added as i32."""
        return self.call("llvm.aarch64.neon.saddlp.v4i32.v8i16", V4I, sums)

    def table_pick(self, value: Value, lanes: Sequence[int]) -> Value:
        """Bytes of i8x16 by constant index, in one instruction."""
        return self.call("llvm.aarch64.neon.tbl1.v16i8", V16B, value, self.constant(V16B, lanes))

    def lookup(self, table: Sequence[int], index: Value) -> Value:
        entries = self.constant(V16B, table)
        return self.join_all([self.call("llvm.aarch64.neon.tbl1.v16i8", V16B, entries, part) for part in self.split(index, 16)])

    # --- bits of quants ------------------------------------------------------------------------------------------------
    def field(self, quants: Value, shift: int, mask: int) -> Value:
        """Shifts are of bytes, which makes many a mask needless."""
        if shift > 0:
            quants = self.b.lshr(quants, shift)
        elif shift < 0:
            quants = self.b.shl(quants, -shift)
        left = 0xFF >> shift if shift >= 0 else 0xFF << -shift & 0xFF
        return quants if left & ~mask == 0 else self.b.and_(quants, mask)

    def fields(self, quants: Value, shifts: Sequence[int], mask: int) -> Value:
        """One shift: 16 bytes are all there is."""
        return self.field(quants, shifts[0], mask)

    def first_bytes(self, block: Blocks) -> Value:
        return self.pack([self.load(I8, block(j)) for j in range(8)])

    def insert_left(self, low: Value, high: Value, shift: int) -> Value:
        """high << shift, with the lowest `shift` bits of low below, byte by byte."""
        return self.call("llvm.aarch64.neon.vsli.v16i8", V16B, low, high, I32(shift))

    def insert_right(self, high: Value, low: Value, shift: int) -> Value:
        """low >> shift, with the highest `shift` bits of high above, byte by byte."""
        return self.call("llvm.aarch64.neon.vsri.v16i8", V16B, high, low, I32(shift))


class DotProd(Neon):
    """Four i8 x i8 products added to an i32 lane (Raspberry Pi 5, Apple M1)."""

    level: ClassVar[Level] = LEVELS["dotprod"]

    def dot_sixteens(self, pairs: Sequence[tuple[Value, Value]], most: int, start: Value | None = None) -> Value:
        total = self.constant(V4I, 0) if start is None else start
        for w, x in pairs:
            total = self.call("llvm.aarch64.neon.sdot.v4i32.v16i8", V4I, total, w, x)
        return total

    def dot_anyhow(self, pairs: Sequence[tuple[Value, Value]], most: int, start: Value | None = None) -> Value:
        return self.dot_sixteens(pairs, most, start)


class I8mm(DotProd):
    """Two rows by two columns of eight quants at a time, for tiles of many columns (Apple M2, Graviton 3)."""

    level: ClassVar[Level] = LEVELS["i8mm"]

    def panel_words(self, words: Sequence[Value]) -> list[Value]:
        """Eight quants of each row side by side."""
        result = []
        for a, b in zip(words[0::2], words[1::2], strict=True):
            lanes, half = a.type.count, a.type.count // 2
            for first in (0, half):
                result.append(self.shuffle(a, b, [lane + part for lane in range(first, first + half) for part in (0, lanes)]))
        return result

    def products_of_pairs(self, total: Value, rows: Value, columns: Value) -> Value:
        """total + two rows by two columns of eight quants each: i32x4 of row 0 by both columns, then row 1."""
        return self.call("llvm.aarch64.neon.smmla.v4i32.v16i8", V4I, total, rows, columns)
