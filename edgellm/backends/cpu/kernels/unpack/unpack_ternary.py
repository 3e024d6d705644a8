"""Unpackers of types of one bit, of two and of base 3, and of NVFP4, written as IR: see unpack.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from edgellm.backends.cpu.kernels.unpack.unpack import FP4_VALUES, Superblock, _few, _half, _halves, _near_place, _near_places
from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import V16B, V32B, Blocks, Generic

V16H, V16F = vector(I16, 16), vector(F32, 16)


def _repeated(e: Generic, block: Blocks, times: int) -> Value:
    """The f16 at the start of each block of 32 * times, in lanes of eight blocks of 32, as f32."""
    few = e.from_f16(e.pack([e.load(I16, block(j)) for j in range(8 // times)]))
    return e.pick(few, [j // times for j in range(8)])


def _tq2_0(e: Generic, block: Blocks) -> Superblock:
    """Two bits a quant: 32 bytes for every four blocks."""
    p = block(0)

    def quants(q: int, h: int) -> Value:
        few = _few(e, q)
        half = few[0] // 4
        return _near_place(e, e.sixteens(p, half * 32, [(j // 4 - half) * 2 + h for j in few]), [j % 4 * 2 for j in few], 3)

    places = _near_places(e)
    return Superblock(quants, [_half(e, p, 64)], most=12 if places else 3, offset=1, places=places)


def _q2_0(e: Generic, block: Blocks) -> Superblock:
    """Two bits a quant, neighbours in a byte: four bytes of a half block become its 16 quants."""

    def quants(q: int, h: int) -> Value:
        few = _few(e, q)
        fours = [e.load(I32, block(j // 2), 2 + 8 * (j % 2) + 4 * h) for j in few]
        wide = vector(I32, 4 * len(few))
        words = e.b.zext(e.cast(e.pack(fours), vector(I8, 4 * len(few))), wide)
        words = e.b.and_(e.b.or_(words, e.b.shl(words, 12)), 0x000F000F)
        words = e.b.and_(e.b.or_(words, e.b.shl(words, 6)), 0x03030303)
        return e.cast(words, vector(I8, 16 * len(few)))

    return Superblock(quants, [_repeated(e, block, 2)], most=3, offset=1)


def _q1_0(e: Generic, block: Blocks) -> Superblock:
    """A bit each: twice the bit, less 1."""

    @cache
    def sixteens(of: Sequence[int]) -> Value:
        return e.join_all([e.load(V16B, block(each), 2) for each in of])

    def quants(q: int, h: int) -> Value:
        few = _few(e, q)
        octets = [4 * (j % 4) + 2 * h + i // 8 for j in few for i in range(16)]
        of = (0, 1) if e.apart else (few[0] // 4,)
        spread = e.pick(sixteens(of), [octet + i // 16 * 16 * (len(of) - 1) for i, octet in enumerate(octets)])
        bit = e.constant(spread.type, [(1 << i % 8) - (256 if i % 8 == 7 else 0) for i in range(spread.type.count)])
        there = e.b.icmp_unsigned("==", e.b.and_(spread, bit), bit)
        return e.b.and_(e.b.sext(there, spread.type), 2)

    return Superblock(quants, [_repeated(e, block, 4)], most=2, offset=1)


def _tripled(e: Generic, value: Value) -> Value:
    """Three times each byte. Of plain sums LLVM makes products by powers of three, for which there are no instructions."""
    double = e.b.add(value, value)
    return e.b.add(e.opaque(double), value)


def _tq1_0(e: Generic, block: Blocks) -> Superblock:
    """Five quants in a byte, as base-3 digits of a fraction of 256: times 3^n, the digit is what goes over. 32 bytes have five
    blocks; 16 more have five half blocks; of four, four times, there is the last one.
    """
    p = block(0)

    def turned(value: Value) -> Value:
        """With all top bits turned, which multiplying by three keeps so: signed comparisons are one instruction, others two."""
        return e.b.xor(value, -128)

    @cache
    def wide(n: int) -> Value:
        return _tripled(e, wide(n - 1)) if n else turned(e.load(V32B, p, 0))

    @cache
    def narrow(n: int) -> Value:
        if n == 5:  # four times the last four bytes: each times another power
            fours = e.b.zext(turned(e.cast(e.splat(e.load(I32, p, 48), 4), V16B)), V16H)
            powers = e.constant(V16H, [3 ** (i // 4) for i in range(16)])
            return e.b.trunc(e.b.mul(fours, powers), V16B)
        return _tripled(e, narrow(n - 1)) if n else turned(e.load(V16B, p, 32))

    def piece(j: int, h: int) -> Value:
        return e.pick(wide(j), range(16 * h, 16 * h + 16)) if j < 5 else narrow(2 * (j - 5) + h)

    @cache
    def same(n: int, offset: int) -> Value:
        """`wide` or `narrow` of 16 bytes, in both halves of a vector."""
        return _tripled(e, same(n - 1, offset)) if n else turned(e.sixteens(p, offset, [0, 0]))

    def last() -> Value:
        fours = turned(e.cast(e.splat(e.load(I32, p, 48)), V32B))
        powers, low = e.constant(V16H, [3 ** (i // 2 % 4) for i in range(16)]), e.constant(V16H, 0xFF)
        words = e.cast(fours, V16H)
        even = e.b.and_(e.b.mul(words, powers), low)
        return e.cast(e.b.or_(even, e.b.mul(e.b.and_(words, -256), powers)), V32B)

    def apart(q: int, h: int) -> Value:
        """Blocks q and q + 4: blends take any port, other ways to join halves of vectors do not."""
        if q == 0:
            high = same(4, 16 * h)
        else:
            high = last() if (q, h) == (3, 1) else same(2 * (q - 1) + h, 32)
        return e.shuffle(same(q, 16 * h), high, [*range(16), *range(48, 64)])

    def quants(q: int, h: int) -> Value:
        digits = apart(q, h) if e.apart else e.join_all([piece(j, h) for j in _few(e, q)])
        over = [e.b.sext(e.b.icmp_signed(">", digits, least - 128), digits.type) for least in (85, 170)]
        return e.b.sub(0, e.b.add(*over))

    return Superblock(quants, [_half(e, p, 52)], most=2, offset=1)


def _nvfp4(e: Generic, block: Blocks) -> Superblock:
    """Of each half block eight bytes: low nibbles are its first half. Scales of half blocks are E4M3: the bits of an f16, 2^-8 of
    the value. Here they are halved, because the table is doubled.
    """
    raw = e.cast(e.pack([e.load(I32, block(j)) for j in range(4)]), V16B)
    half_bits = e.b.shl(e.b.zext(e.b.and_(raw, 0x7F), V16H), 7)
    value = e.b.fmul(e.from_f16(half_bits), 128.0)
    no_number = e.b.icmp_unsigned("==", raw, 0x7F)
    value = e.b.select(no_number, 0.0, value)
    table = [each + 16 for each in FP4_VALUES]

    def quants(q: int, h: int) -> Value:
        eights = [e.load(I64, block(j // 2), 4 + 16 * (j % 2) + 8 * half) for j, half in _halves(e, q, h)]
        both = e.pick(e.pack(eights), [i // 2 for i in range(2 * len(eights))]) if len(eights) > 1 else e.splat(eights[0], 2)
        nibbles = e.cast(e.b.lshr(both, [0, 4] * len(eights)), vector(I8, 16 * len(eights)))
        return e.lookup(table, e.field(nibbles, 0, 15))

    return Superblock(quants, [e.pick(value, range(half, 16, 2)) for half in (0, 1)], most=28, offset=16)


UNPACK: dict[str, Callable[[Generic, Blocks], Superblock]] = {
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "Q1_0": _q1_0,
    "Q2_0": _q2_0,
    "NVFP4": _nvfp4,
}
