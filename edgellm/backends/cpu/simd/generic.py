"""The portable ISA level: every operation in plain IR, so that it compiles for any processor; the other ISA levels override."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.levels import LEVELS, Level
from edgellm.backends.cpu.simd.base import F16, F32, I1, I8, I16, I32, I64, SimdBuilder, Value, constant, vector

Load = Callable[[], Value]
V8F, V8I, V16B, V32B = vector(F32, 8), vector(I32, 8), vector(I8, 16), vector(I8, 32)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a superblock: `blocks(j)` is the address of block j. `stride`: bytes from one to the next, or None where they
    do not lie side by side. `points`: the address of the numbers of the superblock's points, where they are known already.
    """

    address: Callable[[int], Value]
    stride: int | None = None
    points: Value | None = None

    def __call__(self, j: int) -> Value:
        return self.address(j)


class Generic:
    """Writes IR through one builder. Addresses are i64 values. Nothing here is contracted or reordered by LLVM."""

    level: ClassVar[Level] = LEVELS["generic"]

    def __init__(self, builder: Any) -> None:
        self.b, self.apart = SimdBuilder(builder), False

    def of_one_row(self) -> Generic:
        """The ISA level whose vectors have the lanes of a single row in block_lanes.py."""
        return self

    def of_row(self, name: str) -> Generic:
        """The ISA level that opens full superblocks of a type for row.py: `apart` where that spares shuffles, as sums have block j
        in lane j.
        """
        isa_level = type(self)(self.b)
        isa_level.apart = self.level.single_column == "apart"
        return isa_level

    # --- constants, memory, lanes -------------------------------------------------------------------------------------
    def constant(self, kind: Any, value: float | Sequence[float]) -> Value:
        """A constant; one number fills all lanes of a vector type. `b` makes them of numbers beside another operand."""
        return constant(kind, value)

    def at(self, base: Value, index: Value, size: Value | int) -> Value:
        """base + index * size."""
        return self.b.add(base, self.b.mul(index, size))

    @contextmanager
    def loop(self, n: Value | int) -> Iterator[Value]:
        """A loop whose body is what is written within; the index, from 0 to n - 1."""
        with cgutils.for_range(self.b, n if isinstance(n, ir.Value) else I64(n)) as loop:
            yield loop.index

    def load(self, kind: Any, address: Value, offset: int = 0) -> Value:
        return self.b.load(self._pointer(kind, address, offset), align=1)

    def store(self, value: Value, address: Value, offset: int = 0) -> None:
        self.b.store(value, self._pointer(value.type, address, offset), align=1)

    def store_lanes(self, value: Value, begin: Value, end: Value, address: Value, offset: int = 0) -> None:
        """Store only lanes `begin` to `end` (i64), as far as there are such lanes."""
        b, n = self.b, value.type.count
        lanes = self.constant(vector(I64, n), list(range(n)))
        mask = b.and_(b.icmp_signed(">=", lanes, self.splat(begin, n)), b.icmp_signed("<", lanes, self.splat(end, n)))
        name = f"llvm.masked.store.v{n}{'f32' if value.type.element == F32 else 'i32'}.p0"
        self.call(name, ir.VoidType(), value, self._pointer(value.type, address, offset), I32(1), mask)

    def _pointer(self, kind: Any, address: Value, offset: int) -> Value:
        if offset:
            address = self.b.add(address, offset)
        return self.b.inttoptr(address, kind.as_pointer())

    def call(self, name: str, result: Any, *arguments: Value) -> Value:
        """Call an LLVM intrinsic or a C function by name."""
        kind = ir.FunctionType(result, [value.type for value in arguments])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), arguments)

    def splat(self, value: Value, lanes: int = 8) -> Value:
        empty = ir.Constant(vector(value.type, lanes), ir.Undefined)
        return self.shuffle(self.b.insert_element(empty, value, I32(0)), empty, [0] * lanes)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes of a and b side by side, by constant index."""
        return self.b.shuffle_vector(a, b, ir.Constant(vector(I32, len(lanes)), list(lanes)))

    def pick(self, a: Value, lanes: Sequence[int]) -> Value:
        return self.shuffle(a, a, lanes)

    def pick_in_one(self, a: Value, lanes: Sequence[int]) -> Value:
        """`pick` of 32-bit lanes by a single instruction where LLVM would take several."""
        return self.pick(a, lanes)

    def join(self, a: Value, b: Value) -> Value:
        return self.shuffle(a, b, range(2 * a.type.count))

    def lane(self, a: Value, index: int) -> Value:
        return self.b.extract_element(a, I32(index))

    def pack(self, values: Sequence[Value]) -> Value:
        """Scalars to a vector."""
        result = ir.Constant(vector(values[0].type, len(values)), ir.Undefined)
        for index, value in enumerate(values):
            result = self.b.insert_element(result, value, I32(index))
        return result

    def cast(self, value: Value, kind: Any) -> Value:
        return self.b.bitcast(value, kind)

    def opaque(self, value: Value) -> Value:
        """The same vector, of which LLVM does not know how it was made, where the ISA level can say so."""
        return value

    def keep_order(self) -> None:
        """Loads written before this stay before those written after it."""
        self.b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)

    # --- f32 ----------------------------------------------------------------------------------------------------------
    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c; rounded twice where there is no such instruction (llvm.fma would become a slow call)."""
        return self.b.fadd(self.b.fmul(a, b), c)

    def fma_in_order(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, where it is written: LLVM would convert other operands first, and run out of registers."""
        return self.fma(a, b, c)

    def larger(self, a: Value, b: Value) -> Value:
        """The larger of two; b where one is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def smaller(self, a: Value, b: Value) -> Value:
        return self.b.select(self.b.fcmp_ordered("<", a, b), a, b)

    def fold(self, a: Value, combine: Any) -> Value:
        """All lanes to one, halves first."""
        lanes = a.type.count
        while lanes > 1:
            lanes //= 2
            a = combine(self.pick(a, range(lanes)), self.pick(a, range(lanes, 2 * lanes)))
        return self.lane(a, 0)

    def sum_of_each(self, rows: Sequence[Value]) -> Value:
        """Of eight f32x8: lane i is the sum of the lanes of row i, halves first. Of eight f32x16 the same for each half of them."""
        lanes = rows[0].type.count

        def together(a: Value, b: Value, first: Sequence[int], second: Sequence[int]) -> Value:
            def side(pattern: Sequence[int]) -> Value:
                return self.shuffle(a, b, [lane % 8 + lane // 8 * lanes + half for half in range(0, lanes, 8) for lane in pattern])

            return self.b.fadd(side(first), side(second))

        pairs = [
            together(a, b, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
            for a, b in zip(rows[0::2], rows[1::2], strict=True)
        ]
        a, b = (
            together(a, b, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
            for a, b in zip(pairs[0::2], pairs[1::2], strict=True)
        )  # a: rows 0 and 2, then 1 and 3; b: rows 4 and 6, ...
        sums = together(a, b, (0, 2, 8, 10, 4, 6, 12, 14), (1, 3, 9, 11, 5, 7, 13, 15))
        return self.pick(sums, [lane + half for half in range(0, lanes, 8) for lane in (0, 4, 1, 5, 2, 6, 3, 7)])

    def nearest(self, x: Value) -> tuple[Value, Value]:
        """x rounded to the nearest integer, halves to even, as f32 and as i32; |x| < 2^22."""
        magic = self.constant(x.type, 12582912.0)  # 1.5 * 2^23: the sum's last mantissa bit counts ones
        shifted = self.b.fadd(x, magic)
        integer = vector(I32, x.type.count)
        bits = self.b.sub(self.cast(shifted, integer), 0x4B400000)
        return self.b.fsub(shifted, magic), bits

    def exp(self, x: Value, *, rises: bool = True) -> Value:
        """e^x to about one unit in the last place; 0 below -87.3, inf above 89, NaN stays. `rises`: whether some x are above 0.

        Smaller results would be subnormal, which Intel processors compute by microcode: attention took three times as long.
        """
        b, kind = self.b, x.type
        low, high = self.constant(kind, -87.3), self.constant(kind, 89.0)
        is_zero = b.fcmp_ordered("<", x, low)
        x = b.select(is_zero, low, b.select(b.fcmp_ordered(">", x, high), high, x) if rises else x)
        n, n_bits = self.nearest(b.fmul(x, 1.4426950408889634))
        r = self.fma(n, self.constant(kind, -0.693359375), x)  # ln 2 in two parts, the first exact in 9 bits
        r = self.fma(n, self.constant(kind, 2.12194440e-4), r)
        p = self.constant(kind, 1.9875691500e-4)  # Cephes' expf on [-ln2/2, ln2/2]
        for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            p = self.fma(p, r, self.constant(kind, factor))
        p = b.fadd(self.fma(p, b.fmul(r, r), r), 1.0)
        return b.select(is_zero, 0.0, self.times_power(p, n, n_bits, rises=rises))

    def times_power(self, p: Value, n: Value, n_bits: Value, *, rises: bool = True) -> Value:
        """p * 2^n for integer n, given as f32 and as i32, from -126 to 128, or to 0 if not `rises`, which one factor holds."""
        b = self.b
        half = b.ashr(n_bits, 1)
        for part in (half, b.sub(n_bits, half)) if rises else (n_bits,):
            exponent = b.shl(b.add(part, 127), 23)
            p = b.fmul(p, self.cast(exponent, p.type))
        return p

    # --- half precision -----------------------------------------------------------------------------------------------
    def from_f16(self, h: Value) -> Value:
        """f16 bits (i16 lanes) to f32, with integer operations: not every processor has the conversion."""
        b, lanes = self.b, h.type.count
        integer, kind = vector(I32, lanes), vector(F32, lanes)
        wide = b.zext(h, integer)
        magnitude = b.and_(wide, 0x7FFF)
        scaled = b.fmul(self.cast(b.shl(magnitude, 13), kind), 2.0**112)
        bits = self.cast(scaled, integer)
        special = b.icmp_signed(">", magnitude, 0x7BFF)
        bits = b.select(special, b.or_(bits, 0x7F800000), bits)
        sign = b.shl(b.and_(wide, 0x8000), 16)
        return self.cast(b.or_(bits, sign), kind)

    def to_f16(self, x: Value) -> Value:
        """f32 to f16 bits, halves to even."""
        b, lanes = self.b, x.type.count
        integer, kind = vector(I32, lanes), vector(F32, lanes)
        bits = self.cast(x, integer)
        sign = b.and_(b.lshr(bits, 16), 0x8000)
        a = b.and_(bits, 0x7FFFFFFF)
        odd = b.and_(b.lshr(a, 13), 1)
        normal = b.lshr(b.add(b.add(a, -0x38000000 + 0xFFF), odd), 13)
        aligner = self.constant(integer, 0x3F000000)  # 0.5: adding it moves a subnormal's bits into place, rounded
        tiny = b.sub(self.cast(b.fadd(self.cast(a, kind), self.cast(aligner, kind)), integer), aligner)
        is_nan = b.icmp_signed(">", a, 0x7F800000)
        special = b.select(is_nan, self.constant(integer, 0x7E00), self.constant(integer, 0x7C00))
        result = b.select(b.icmp_signed("<", a, 0x38800000), tiny, normal)
        result = b.select(b.icmp_signed(">=", a, 0x47800000), special, result)
        return b.trunc(b.or_(result, sign), vector(I16, lanes))

    def from_bf16(self, h: Value) -> Value:
        integer = vector(I32, h.type.count)
        return self.cast(self.b.shl(self.b.zext(h, integer), 16), vector(F32, h.type.count))

    def field(self, quants: Value, shift: int, mask: int) -> Value:
        """(quants >> shift) & mask of each byte; shift < 0: to the left. No bit of `mask` may come from outside its byte."""
        if shift:
            wide = vector(I16, quants.type.count // 2)
            move = self.b.lshr if shift > 0 else self.b.shl
            quants = self.cast(move(self.cast(quants, wide), self.constant(wide, abs(shift))), quants.type)
        return self.b.and_(quants, mask)

    def fields(self, quants: Value, shifts: Sequence[int], mask: int) -> Value:
        """`field` with a shift for every 16 bytes."""
        wide = vector(I32, quants.type.count // 4)
        words = self.cast(quants, wide)

        def each(amounts: Sequence[int]) -> Value:
            return self.constant(wide, [amount for amount in amounts for _ in range(4)])

        if min(shifts) >= 0:
            words = self.b.lshr(words, each(shifts))
        elif max(shifts) <= 0:
            words = self.b.shl(words, each([-shift for shift in shifts]))
        else:  # a rotation where the processor has it
            words = self.call(f"llvm.fshr.v{wide.count}i32", wide, words, words, each([shift % 32 for shift in shifts]))
        return self.b.and_(self.cast(words, quants.type), mask)

    def first_bytes(self, block: Blocks) -> Value:
        """i8x8 of the first byte of each block. Integer units put them together, of which LLVM must not know: those that shuffle
        have the most to do.
        """
        word = I64(0)
        for j in range(8):
            word = self.b.or_(word, self.b.shl(self.b.zext(self.load(I8, block(j)), I64), 8 * j))
        return self.cast(self.b.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [word], False), vector(I8, 8))

    def negated(self, x: Value, negative: Value) -> Value:
        """x, with the opposite sign where `negative` (i1 lanes)."""
        return self.b.select(negative, self.b.sub(0, x), x)

    # --- dot products of quants ----------------------------------------------------------------------------------------
    def sixteens(self, address: Value, offset: int, pieces: Sequence[int]) -> Value:
        """16-byte pieces of the 64 bytes at address + offset, side by side: one for each of the blocks that are `together`."""
        for times in (1, 2, 4):  # one load, which may broadcast
            run = [*range(pieces[0], pieces[0] + len(pieces) // times)]
            if list(pieces) == run * times:
                return self.join_all([self.load(vector(I8, 16 * len(run)), address, offset + 16 * pieces[0])] * times)
        return self._from_pieces(address, offset, pieces)

    def _from_pieces(self, address: Value, offset: int, pieces: Sequence[int]) -> Value:
        parts = {piece: self.load(V16B, address, offset + 16 * piece) for piece in sorted(set(pieces))}
        return self.join_all([parts[piece] for piece in pieces])

    def each_sixteen(self, block: Blocks, few: Sequence[int], offset: int) -> Value:
        """16 bytes at `offset` of each of a few blocks, side by side."""
        return self.join_all([self.load(V16B, block(j), offset) for j in few])

    def each_four(self, block: Blocks, few: Sequence[int], offset: int) -> Value:
        """4 bytes at `offset` of each of a few blocks, each repeated to 16 bytes."""
        words = self.pack([self.load(I32, block(j), offset) for j in few])
        return self.cast(self.pick(words, [i // 4 for i in range(4 * len(few))]), vector(I8, 16 * len(few)))

    def each_word(self, block: Blocks, offset: int, words: int) -> Value:
        """The 16-bit words at `offset` of each of eight blocks: the first of each, then the second of each if two are wanted."""
        return self.join_all([self.pack([self.load(I16, block(j), offset + 2 * word) for j in range(8)]) for word in range(words)])

    def dwords(self, address: Value, offset: int, size: int, places: Sequence[int]) -> Value:
        """i32x16 at constant places in the `size` (64 or 128) bytes at address + offset; at ISA levels with two `lane_rows`."""
        raise NotImplementedError

    def upper_half(self) -> Value:
        """i1x16, the last eight set."""
        return self.constant(vector(I1, 16), [0] * 8 + [1] * 8)

    def join_all(self, parts: Sequence[Value]) -> Value:
        """Vectors side by side; a power of two of them."""
        while len(parts) > 1:
            parts = [self.join(a, b) for a, b in zip(parts[0::2], parts[1::2], strict=True)]
        return parts[0]

    def lane_per_row(self, fours: Sequence[Value]) -> list[Value]:
        """Four words of each of `tile_rows` rows to four vectors with a lane per row."""
        return self.turned([self.join_all(fours[i::4]) for i in range(4)])

    def turned(self, rows: Sequence[Value]) -> list[Value]:
        """4 x 4 lanes of 32 bits within each 128 bits of four vectors."""
        kind = rows[0].type
        lanes = kind.count * kind.element.width // 32
        words = [self.cast(row, vector(I32, lanes)) for row in rows]

        def mix(a: Value, b: Value, pattern: Sequence[int]) -> Value:
            order = [4 * part + (i if i < 4 else i - 4 + lanes) for part in range(lanes // 4) for i in pattern]
            return self.shuffle(a, b, order)

        low = [mix(words[i], words[i + 1], (0, 4, 1, 5)) for i in (0, 2)]
        high = [mix(words[i], words[i + 1], (2, 6, 3, 7)) for i in (0, 2)]
        return [self.cast(mix(a, b, pattern), kind) for a, b in (low, high) for pattern in ((0, 1, 4, 5), (2, 3, 6, 7))]

    def dot(self, pairs: Sequence[tuple[Value, Value]], signed: bool, most: int, start: Value | None = None) -> Value:
        """start + the sum over pairs (w, x) of i8 vectors of the products of neighbouring fours, as i32 lanes.

        x: quants in -127..127. w: `signed` quants, or unsigned ones of at most `most` (see `wide_quants`).
        """
        b, lanes = self.b, pairs[0][0].type.count
        total = None
        for w, x in pairs:
            w, x = (b.sext if signed else b.zext)(w, vector(I16, lanes)), b.sext(x, vector(I16, lanes))
            twos = self._products(w, x, 0)
            twos = b.add(twos, self._products(w, x, 1))
            total = twos if total is None else b.add(total, twos)
        result = b.add(self.pick(total, range(0, lanes // 2, 2)), self.pick(total, range(1, lanes // 2, 2)))
        return result if start is None else b.add(result, start)

    def dot_int16(self, pairs: Sequence[tuple[Value, Value]], start: Value) -> Value:
        """start (i32x8) + the sum over pairs of i16x16 of the products of neighbouring twos."""
        b, kind = self.b, vector(I32, 16)
        for w, x in pairs:
            products = b.mul(b.sext(w, kind), b.sext(x, kind))
            start = b.add(start, b.add(self.pick(products, range(0, 16, 2)), self.pick(products, range(1, 16, 2))))
        return start

    def dots(
        self, weights: Sequence[Load], columns: Sequence[Sequence[Load]], signed: bool, most: int, starts: Sequence[Value | None]
    ) -> list[Value]:
        """The `dot` of the same weights with each of some columns. Loads are written where they serve best."""
        w = [load() for load in weights]
        return [
            self.dot([(each, load()) for each, load in zip(w, x, strict=True)], signed, most, start)
            for x, start in zip(columns, starts, strict=True)
        ]

    def begin_tiles(self, depth: int) -> None:
        """Before the first `tile_products`, all of them of `depth` quants."""

    def end_tiles(self) -> None:
        """After the last one."""

    def tile_products(
        self, xs: Sequence[Value], x_stride: int, ws: Sequence[Value], depth: int, signed: bool, outs: Sequence[Sequence[Value]]
    ) -> None:
        """Sums of `depth` (16 or 32) products each: sixteen rows of i8 at x, `x_stride` bytes apart, with sixteen columns at w, of
        which four rows lie together; u8 or, `signed`, i8. Of each w with each x, two of each at most, to `outs[w][x]` as
        i32[16][16], a row for each one of x.
        """
        kind, rows = vector(I32, 16), vector(I8, 64)
        for w, places in zip(ws, outs, strict=True):
            weights = [self.load(rows, w, 64 * g) for g in range(depth // 4)]
            for x, out in zip(xs, places, strict=True):
                with self.loop(16) as row:
                    at = self.at(x, row, x_stride)
                    fours = [self.cast(self.splat(self.load(I32, at, 4 * g), 16), rows) for g in range(depth // 4)]
                    total = Generic.dot(self, list(zip(weights, fours, strict=True)), signed, 128)
                    self.store(self.b.bitcast(total, kind), self.at(out, row, 64))

    def pair_products(self, w: Value, x: Value) -> Value:
        """Products of unsigned quants w with x, of two neighbours together, as i16: where the ISA level has `has_pair_sums`."""
        raise NotImplementedError

    def fours_of_pairs(self, sums: Value) -> Value:
        """Neighbouring lanes of i16 together, as i32."""
        raise NotImplementedError

    def dots_of_groups(
        self,
        groups: Sequence[Sequence[Load]],
        columns: Sequence[Sequence[Load]],
        signed: bool,
        most: int,
        starts: Sequence[Sequence[Value | None]],
    ) -> list[list[Value]]:
        """`dots` of each of some groups of rows, at ISA levels with `tile_groups`."""
        return [self.dots(group, columns, signed, most, start) for group, start in zip(groups, starts, strict=True)]

    def parted(self, w: Value) -> Any:
        """Signed quants as `dots` takes them, at ISA levels with `sign_sums`: sizes, and masks of the negative ones."""
        raise NotImplementedError

    def negatives(self, weights: Sequence[Value]) -> Value:
        """Sums of the magnitudes of negative quants, in the lanes that `dot` of these weights has; see `sign_sums`."""
        raise NotImplementedError

    def _products(self, w: Value, x: Value, first: int) -> Value:
        """Every second product of i16 lanes, as i32: LLVM makes one multiply-add of pairs of both (3 times as fast on SSE2)."""
        every, wide = range(first, w.type.count, 2), vector(I32, w.type.count // 2)
        return self.b.mul(self.b.sext(self.pick(w, every), wide), self.b.sext(self.pick(x, every), wide))

    def split_tile(self, n_scales: int, n_mins: int, signed: bool) -> Sequence[int]:
        """`tile_columns` of a type with so many scales and mins for each block."""
        return self.level.tile_columns[n_scales - 1]

    def panel_words(self, words: Sequence[Value]) -> Sequence[Value]:
        """Four words (four quants each) of all rows of a tile, a lane per row, in the order in which a panel has them."""
        return words

    def lookup(self, table: Sequence[int], index: Value) -> Value:
        """table[index] for i8 lanes of 0..15 and a constant table of 16."""
        result = self.constant(index.type, 0)
        for i, entry in enumerate(table):
            if entry:
                mask = self.b.sext(self.b.icmp_unsigned("==", index, i), index.type)
                result = self.b.or_(result, self.b.and_(mask, entry))
        return result

    def lookup_near(self, table: Value, index: Value) -> Value:
        """In each 128 bits table[index], for i8 lanes of 0..15; on x86."""
        raise NotImplementedError

    # --- waiting ------------------------------------------------------------------------------------------------------
    def prefetch(self, address: Value, offset: int = 0, *, to_first: bool = True, to_write: bool = False) -> None:
        """Ask for the cache line, for the first-level cache or only the second; an address that is not mapped does no harm."""
        where, write, level, data = self._pointer(I8, address, offset), I32(int(to_write)), I32(3 if to_first else 2), I32(1)
        self.call("llvm.prefetch.p0", ir.VoidType(), where, write, level, data)

    def pause(self) -> None:
        """Tell the core that this thread spins."""
        triple = str(self.b.module.triple)
        if triple.startswith(("x86_64", "i386", "i686")):
            self.call("llvm.x86.sse2.pause", ir.VoidType())
        elif triple.startswith(("aarch64", "arm64")):
            self.call("llvm.aarch64.hint", ir.VoidType(), I32(1))


class WithFloats(Generic):
    """Processors with instructions for fma and for f16."""

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.call(f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)

    def from_f16(self, h: Value) -> Value:
        return self.b.fpext(self.cast(h, vector(F16, h.type.count)), vector(F32, h.type.count))

    def to_f16(self, x: Value) -> Value:
        return self.cast(self.b.fptrunc(x, vector(F16, x.type.count)), vector(I16, x.type.count))
