"""Small quants times integer scales, as IR: bytes again.

x86 has no products of bytes: they are looked up in a table that each row has of its own. Of quants of two bits there are four
multiples of a scale, so the tables of four rows fill 128 bits. A third bit, of quants with the offset 4, adds four times the scale.
"""

from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu.kernels.unpack.unpack import Superblock
from edgellm.backends.cpu.simd.base import I8, Value, vector
from edgellm.backends.cpu.simd.generic import Generic

THIRD = 4  # offset of quants of three bits


def multiplier(e: Generic, scale: Value, offset: int) -> Callable[[Value, int], Value]:
    """Gives quants * scale, of four quants in each lane of 32 bits, which has a scale of its own (i32), from (quants, place):
    quants, as multiples by 2^place. With the offset 4: 128 - (quant - 4) * scale.
    """
    assert offset in (0, THIRD)  # of quants of two bits, of three
    b, kind = e.b, scale.type
    bytes_of, n = vector(I8, 4 * kind.count), kind.count

    def everywhere(value: Value) -> Value:
        """The lowest byte of a lane in its four bytes."""
        return e.pick(e.cast(value, bytes_of), [4 * lane for lane in range(n) for _ in range(4)])

    def masked(value: Value, mask: list[int]) -> Value:
        return b.and_(value, [-each for each in mask] * n)

    own = everywhere(b.neg(scale) if offset else scale)
    multiples = b.add(masked(own, [0, 1, 0, 1]), masked(b.add(own, own), [0, 0, 1, 1]))  # 0 to 3 times
    table_of_row = e.constant(kind, [0x04040404 * (lane % 4) for lane in range(n)])
    if offset:
        least = e.constant(bytes_of, -128)
        without_third = everywhere(b.add(b.shl(scale, 2), 128))

    def multiply(quants: Value, place: int) -> Value:
        words = b.lshr(quants, place) if place else quants
        index = b.or_(b.and_(words, 0x03030303) if offset else words, table_of_row)
        product = e.lookup_near(multiples, e.cast(index, bytes_of))
        if not offset:
            return product
        third = b.and_(e.cast(words, bytes_of), THIRD)
        return b.add(product, b.select(b.icmp_unsigned("!=", third, 0), least, without_third))

    return multiply


def folded_superblock(e: Generic, superblock: Superblock) -> Superblock:
    """A superblock of quants that are multiplied by their scales, at ISA levels that multiply bytes and have half a block in a
    vector. With an offset they are minus what they mean, as the largest would be 128.
    """
    assert e.level.dot == "signed"
    b, factor = e.b, superblock.factor[0]

    def quants(block: int, half: int) -> Value:
        values = superblock.quants(block, half)
        scale = b.trunc(e.lane(superblock.scales[half], block), I8)
        if superblock.offset:
            values = b.sub(superblock.offset, values)
        return b.mul(values, e.splat(scale, values.type.count))

    return Superblock(quants, [b.fneg(factor) if superblock.offset else factor], most=128, mins=superblock.mins, signed=True)
