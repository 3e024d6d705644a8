"""A row of block-quantised weights by a single column, as IR, two superblocks at once: at ISA levels with `superblock_pairs`, of
types that take longer one by one than reading them from memory does.

Integer sums of a superblock fill vectors by themselves. What weighs them, scales and mins, has eight lanes, half a vector: it is
decoded and multiplied for both at once, the first in the first lanes. Numbers are those of unpack.py, operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.kernels.matmul.two_rows import Rows
from edgellm.backends.cpu.kernels.prefetch import prefetch
from edgellm.backends.cpu.kernels.unpack.superblock import (
    BLOCKS,
    Shape,
    half_sums,
    lanes_of_halves,
    open_superblock,
    pair_weighed,
    raw_superblock_bytes,
)
from edgellm.backends.cpu.simd.base import F32, I8, I16, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import SUPERBLOCK

PAIR = 2
LANES = PAIR * BLOCKS
FLOATS, INTEGERS = vector(F32, LANES), vector(I32, LANES)
Numbers = tuple[list[Value], list[Value], list[Value]]  # scales, mins and factor of both, as Superblock has them


def add_pairs(
    e: Generic, name: str, shape: Shape, weights: Value, pairs: Value, column: Value, section: Value, first_d: Value, total: Value
) -> None:
    """Add the first `pairs` pairs of a row's superblocks, one at least, to the accumulators at `total`; each is weighed a turn
    later. `section`, `first_d`: of the column, see superblock.superblock_weighed.
    """
    b, nbytes = e.b, raw_superblock_bytes(name)

    def opened(index: Value) -> list[Value]:
        first = e.at(weights, index, PAIR * nbytes)
        addresses, sums = [first, b.add(first, nbytes)], []
        prefetch(e, first, PAIR * nbytes)
        for i, address in enumerate(addresses):
            quants = b.add(column, b.add(b.mul(index, PAIR * SUPERBLOCK), i * SUPERBLOCK))
            sums.append(half_sums(e, shape, open_superblock(e, name, address), quants))
        lanes = [[*lanes_of_halves(half), *(LANES + lane for lane in lanes_of_halves(half))] for half in (0, 1)]
        scales, mins, factor = NUMBERS[name](e, addresses)
        return [*(e.shuffle(sums[0], sums[1], each) for each in lanes), *scales, *mins, *factor]

    def weighed(index: Value) -> None:
        values = [b.load(place) for place in places]
        dots, scales, mins, factor = values[:2], values[2:4], values[4 : 4 + shape.n_mins], values[4 + shape.n_mins :]
        at = e.at(first_d, index, LANES * 4)
        b.store(pair_weighed(e, shape, b.load(total), dots, scales, mins, factor, at, section), total)

    places = [cgutils.alloca_once_value(b, value) for value in opened(I64(0))]
    with cgutils.for_range_slice(b, I64(1), pairs, I64(1)) as (index, _):
        values = opened(index)
        weighed(b.sub(index, 1))
        for value, place in zip(values, places, strict=True):
            b.store(value, place)
    weighed(b.sub(pairs, 1))


def _both(e: Generic, kind: Any, addresses: Sequence[Value], offset: int) -> Value:
    return e.join(*(e.load(kind, address, offset) for address in addresses))


def _times(e: Generic, d: Value, numbers: Sequence[Value]) -> list[Value]:
    return [e.b.fmul(d, each) for each in numbers]


def _q2_k(e: Generic, addresses: Sequence[Value]) -> Numbers:
    pairs = e.b.zext(_both(e, vector(I16, BLOCKS), addresses, 0), INTEGERS)

    def numbers(shift: int) -> list[Value]:
        fields = [e.b.and_(e.b.lshr(pairs, shift + 8 * half), 15) for half in (0, 1)]
        return [e.b.sitofp(each, FLOATS) for each in fields]

    d, least = Rows(e, "Q2_K", addresses, None).halves(80)
    places = e.constant(FLOATS, [2.0**-place for place in (0, 2, 4, 6)] * 2 * PAIR)
    return numbers(0), _times(e, least, numbers(4)), [e.b.fmul(d, places)]


def _q3_k(e: Generic, addresses: Sequence[Value]) -> Numbers:
    """Scales have four bits in bytes 96 to 103, first the lower halves of all, and two in 104 to 107, of every fourth together."""
    octets, shorts, b = vector(I8, 2 * LANES), vector(I16, LANES), e.b
    twice = [e.load(vector(I32, 2), address, 96) for address in addresses for _ in (0, 1)]
    low = b.lshr(e.join_all(twice), [0, 0, 4, 4] * PAIR)
    low = b.and_(low, 0x0F0F0F0F)
    high = e.pick(e.pack([e.load(I32, address, 104) for address in addresses]), [0] * 4 + [1] * 4)
    high = b.and_(b.lshr(high, [0, 2, 4, 6] * PAIR), 0x03030303)
    sixes = e.cast(b.or_(low, b.shl(high, 4)), octets)
    pairs = b.sext(e.cast(b.sub(sixes, 32), shorts), INTEGERS)
    first = b.ashr(b.shl(pairs, 24), 24)
    scales = [b.sitofp(each, FLOATS) for each in (first, b.ashr(pairs, 8))]
    return scales, [], [Rows(e, "Q3_K", addresses, None).halves(106)[1]]


NUMBERS: dict[str, Callable[[Generic, Sequence[Value]], Numbers]] = {"Q2_K": _q2_k, "Q3_K": _q3_k}


def in_pairs(e: Generic, name: str, n_columns: int) -> bool:
    """True if so many columns are multiplied this way."""
    return e.level.single_column == "pairs" and name in NUMBERS and n_columns == 1
