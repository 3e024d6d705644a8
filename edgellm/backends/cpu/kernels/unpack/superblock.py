"""One superblock of a row of block-quantised weights, as IR: opened for `dot`, multiplied by a few columns, or laid out for a
panel.

A row's sum is the same whichever way it is computed, bit by bit: integer dot products of each block (or half block), offsets
included, are exact; `weighed` makes a number of them; accumulator j takes, superblock by superblock, what block j gives; the eight
accumulators are added first to last at the end. For one row they are lanes of a vector; in a panel (panel.py) eight passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from edgellm.backends.cpu.kernels.unpack.openers import open_blocks
from edgellm.backends.cpu.kernels.unpack.unpack import Superblock
from edgellm.backends.cpu.kernels.unpack.unpack_grids import SignedSuperblock
from edgellm.backends.cpu.levels import Level
from edgellm.backends.cpu.simd.base import F32, I8, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Blocks, Generic
from edgellm.backends.cpu.traits import BLOCK, SUPERBLOCK, TRAITS

VECTOR_BYTES = 32
SMALL_QUANTS = 7  # up to which quants times their scales are bytes
BLOCKS = SUPERBLOCK // BLOCK
START_SECTION = 2  # of a block's activations at ISA levels with a `tile_offset`; see traits.py


@dataclass(frozen=True, slots=True)
class Shape:
    """A type's layout at an ISA level: vectors of scales and mins per superblock, range and sign of its quants."""

    n_scales: int
    n_mins: int
    most: int
    offset: int
    signed: bool
    n_factors: int
    by_block: bool
    folded: bool = False  # in a panel: quants times the scales of their half blocks; see `folded`

    @property
    def n_vectors(self) -> int:
        """Of a superblock, beside its quants: scales, mins, factor."""
        return self.n_scales + self.n_mins + self.n_factors


def shape_of(name: str, instructions: type[Generic]) -> Shape:
    """Found by opening a superblock in a function that is thrown away."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [I64]), "probe")
    e = instructions(ir.IRBuilder(function.append_basic_block()))
    superblock = open_superblock(e, name, function.args[0])
    by_block = TRAITS[name].by_block and instructions.level.by_block
    assert not (TRAITS[name].by_block and len(superblock.mins) == 1)  # see `sums_of`
    return Shape(
        len(superblock.scales),
        len(superblock.mins),
        superblock.most,
        superblock.offset,
        superblock.signed,
        len(superblock.factor),
        by_block,
    )


def folded(shape: Shape, level: Level) -> Shape:
    """The layout of a type in a panel. Small quants times the integer scales of their half blocks fit bytes as well: a block
    then takes one dot product, whose factor is its scale. Where they have an offset they are minus that, as the largest is 128.
    """
    if level.dot == "signed" and shape.n_factors and shape.most <= SMALL_QUANTS:
        return replace(shape, n_scales=1, n_factors=0, most=128, offset=0, signed=True, folded=True)
    if level.wide_quants and shape.n_factors:
        return replace(shape, n_scales=1, n_factors=0, most=255, offset=128 if shape.offset else 0, folded=True)
    return shape


def raw_superblock_bytes(name: str) -> int:
    traits = TRAITS[name]
    return SUPERBLOCK // traits.block * traits.block_bytes


def open_superblock(e: Generic, name: str, address: Value, last: Value | None = None, points: Value | None = None) -> Superblock:
    """The superblock at `address`. With `last` (i64): of a row's end, where blocks after block `last` do not exist; they are read
    as that one, and count for nothing because activations are padded with zeros. `points`: see Blocks.
    """
    stride = TRAITS[name].block_bytes
    if last is None:
        return open_blocks(e, name, Blocks(lambda j: e.b.add(address, j * stride), stride, points))

    def block(j: int) -> Value:
        index = e.b.select(e.b.icmp_signed("<", j, last), j, last)
        return e.at(address, index, stride)

    return open_blocks(e, name, Blocks(block))


def quants_offset(block: int, half: int, by_block: bool) -> int:
    """Where the 16 quants of a half block lie in a superblock of activations: first halves of four blocks, then their second
    halves; or block after block.
    """
    if by_block:
        return block * BLOCK + half * BLOCK // 2
    return block // 4 * 4 * BLOCK + half * 2 * BLOCK + block % 4 * BLOCK // 2


def _vector_offset(e: Generic, by_block: bool, q: int, h: int) -> int:
    """Where the activations lie that go with the vector `quants(q, h)` of a superblock."""
    if e.apart:
        return (2 * q + h) * BLOCK
    return (2 * q + h) * e.level.together * BLOCK // 2 if by_block else quants_offset(q * e.level.together, h, by_block)


def sums_section(index: int, n: int) -> int:
    """Which section of a row of activations has the sums for the only one, or the first or second of two vectors."""
    return index + n


def sums_of(e: Generic, shape: Shape, number: Callable[[Any, int], Value]) -> list[Value]:
    """Factors of the mins of tiles and lanes: minus the sums of a block's activations. `number(element, section)`: one of
    its numbers, as traits.py has them.
    """
    if not e.level.tile_offset:
        return [number(I32, sums_section(index, shape.n_mins)) for index in range(shape.n_mins)]
    return [number(F32, 1)] if shape.n_mins == 1 else [number(I32, START_SECTION + index) for index in range(shape.n_mins)]


def mins_of(e: Generic, mins: Sequence[Value]) -> list[Value]:
    """Mins for `sums_of`: those of half blocks are `tile_offset` times as large."""
    if len(mins) == 2 and e.level.tile_offset:
        return [e.b.fmul(each, 1 / e.level.tile_offset) for each in mins]
    return list(mins)


def start_of(e: Generic, shape: Shape, index: int, offset: int, number: Callable[[Any, int], Value]) -> Value | None:
    """Initial sums of dot products of quants with an offset, of a block, its first half or its second; `number`: see `sums_of`."""
    if not shape.offset:
        return None
    if not e.level.tile_offset:
        return accumulator_init(e, offset, number(I32, sums_section(index, shape.n_scales)))
    start = number(I32, 1 if shape.folded else START_SECTION + index)
    less = (e.level.tile_offset // offset).bit_length() - 1
    return e.b.ashr(start, less) if less else start


def accumulator_init(e: Generic, offset: int, sums: Value) -> Value:
    """The initial sum of a dot product: offset (a power of two) * negative sums of activation quants."""
    return e.b.shl(sums, offset.bit_length() - 1)


def weighed(
    e: Generic,
    total: Value,
    dots: Sequence[Value],
    scales: Sequence[Value],
    mins: Sequence[Value],
    sums: Sequence[Value],
    d: Value,
    factor: Sequence[Value] = (),
) -> Value:
    """total + d * (sum of scale * dot and of minimum * negative sum of activation quants).

    dots: i32; sums: i32 or f32. With a factor scales are integers, i32 or f32, and it multiplies what they give.
    `mins_first`: see Generic.
    """
    return e.fma(_sum_of_products(e, dots, scales, mins, sums, factor), d, total)


def _sum_of_products(
    e: Generic,
    dots: Sequence[Value],
    scales: Sequence[Value],
    mins: Sequence[Value],
    sums: Sequence[Value],
    factor: Sequence[Value],
) -> Value:
    if factor:
        dots, scales = [_scaled_sum(e, dots, scales)], factor
    halves = [*zip(mins, sums, strict=True)], [*zip(scales, dots, strict=True)]
    parts = [*halves[0], *halves[1]] if e.level.mins_first else [*halves[1], *halves[0]]
    kind = parts[0][0].type
    numbers = [number if number.type == kind else e.b.sitofp(number, kind) for _, number in parts]
    value = e.b.fmul(numbers[0], parts[0][0])
    for (weight, _), number in zip(parts[1:], numbers[1:], strict=True):
        value = e.fma(number, weight, value)
    return value


def _scaled_sum(e: Generic, dots: Sequence[Value], scales: Sequence[Value]) -> Value:
    """The sum of scale * dot, exact."""
    if scales[0].type == dots[0].type:
        return functools.reduce(e.b.add, [e.b.mul(dot, scale) for dot, scale in zip(dots, scales, strict=True)])
    numbers = [e.b.sitofp(dot, scales[0].type) for dot in dots]  # less than 2^24: the fastest way on x86
    value = e.b.fmul(numbers[0], scales[0])
    for number, scale in zip(numbers[1:], scales[1:], strict=True):
        value = e.fma(number, scale, value)
    return value


def superblock_step(
    e: Generic,
    shape: Shape,
    superblock: Superblock,
    totals: Sequence[Value],
    columns: Sequence[tuple[Value, Value]],
    section: Value,
    blocks: int = BLOCKS,
) -> list[Value]:
    """Totals + the products of one superblock with each column: addresses of its quants and of the d of its blocks; sections of
    sums follow `section` bytes apart. `blocks`: how many there are, the activations of the others being zeros.
    """
    dots, offset = superblock_dots(e, shape, superblock, len(columns), blocks), offset_of(shape, superblock, len(columns))
    numbers = superblock.scales, superblock.mins, superblock.factor
    return [
        superblock_weighed(e, shape, total, dots(quants), *numbers, None, at, section, offset)
        for total, (quants, at) in zip(totals, columns, strict=True)
    ]


def superblock_dots(
    e: Generic, shape: Shape, superblock: Superblock, n_columns: int, blocks: int = BLOCKS
) -> Callable[[Value], list[Value]]:
    """A function from the address of a superblock's quants to its integer sums with each of some columns, for
    `superblock_weighed`.
    """
    quads, kind = range(blocks // e.level.together), vector(I8, 16 * e.level.together)

    def activations(quants: Value) -> list[list[Value]]:
        return [[e.load(kind, quants, _vector_offset(e, shape.by_block, q, h)) for h in (0, 1)] for q in quads]

    if not _by_signs(superblock, n_columns):
        w = [[superblock.quants(q, h) for h in (0, 1)] for q in quads]
        places = e.constant(V8I, superblock.places) if superblock.places else None

        def sums(quants: Value) -> list[Value]:
            multiples = _block_sums(e, shape, superblock.signed, superblock.most, w, activations(quants))
            return [e.b.ashr(each, places) for each in multiples] if places else multiples

        return sums
    assert isinstance(superblock, SignedSuperblock)  # its sizes are small: sums of them need less care, and have no offset
    sizes, negative = ([[of(q, h) for h in (0, 1)] for q in quads] for of in (superblock.sizes, superblock.negative))

    def signed(quants: Value) -> list[Value]:
        x = activations(quants)
        x = [[e.negated(x[q][h], negative[q][h]) for h in (0, 1)] for q in quads]
        return _block_sums(e, shape, False, superblock.widest, sizes, x)

    return signed


def offset_of(shape: Shape, superblock: Superblock, n_columns: int) -> int:
    """The offset in the sums of `superblock_dots`."""
    return 0 if _by_signs(superblock, n_columns) else shape.offset


def _by_signs(superblock: Superblock, n_columns: int) -> bool:
    """True if activations take the signs of the weights, as those of one column do."""
    return isinstance(superblock, SignedSuperblock) and n_columns == 1


def superblock_weighed(
    e: Generic,
    shape: Shape,
    total: Value,
    dots: Sequence[Value],
    scales: Sequence[Value],
    mins: Sequence[Value],
    factor: Sequence[Value],
    d: Value | None,
    at: Value,
    section: Value,
    offset: int,
) -> Value:
    """`total` + a superblock's dot products with a column that has its d at `at` (unless `d` is known already), and sections of
    sums `section` bytes apart after it.
    """
    dots, negative = _with_sums(e, shape, V8I, dots, at, section, offset)
    return weighed(e, total, dots, scales, mins, negative, e.load(V8F, at) if d is None else d, factor)


def pair_weighed(
    e: Generic,
    shape: Shape,
    total: Value,
    dots: Sequence[Value],
    scales: Sequence[Value],
    mins: Sequence[Value],
    factor: Sequence[Value],
    at: Value,
    section: Value,
) -> Value:
    """`superblock_weighed` of two superblocks that follow each other, in vectors with the lanes of both."""
    dots, negative = _with_sums(e, shape, dots[0].type, dots, at, section, shape.offset)
    values = _sum_of_products(e, dots, scales, mins, negative, factor)
    for first in (0, BLOCKS):
        total = e.fma(e.pick(values, range(first, first + BLOCKS)), e.load(V8F, at, 4 * first), total)
    return total


def _with_sums(
    e: Generic, shape: Shape, kind: Any, dots: Sequence[Value], at: Value, section: Value, offset: int
) -> tuple[Sequence[Value], list[Value]]:
    """Dots without the `offset` in them, and what mins are multiplied with."""

    def sums(index: int, n: int) -> Value:
        return e.load(kind, e.at(at, section, sums_section(index, n)))

    if offset:
        dots = [e.b.add(dot, accumulator_init(e, offset, sums(i, shape.n_scales))) for i, dot in enumerate(dots)]
    return dots, [sums(i, shape.n_mins) for i in range(shape.n_mins)]


def _block_sums(
    e: Generic, shape: Shape, signed: bool, most: int, w: Sequence[Sequence[Value]], x: Sequence[Sequence[Value]]
) -> list[Value]:
    """i32x8 with a lane per block: of full blocks, or of first and second halves where they have scales of their own."""
    if e.level.dot == "pairs" and not signed and BLOCK // 2 // shape.n_scales * 127 * most <= 32767:
        return _pair_sums(e, shape, w, x)
    if e.level.dot == "pairs" and not signed and shape.n_scales == 2 and 4 * 127 * most <= 32767:
        return _two_pair_sums(e, w, x)

    def dot(pairs: Sequence[tuple[Value, Value]]) -> Value:
        return e.dot(pairs, signed, most)

    if shape.n_scales == 1:
        sums = [dot(list(zip(ws, xs, strict=True))) for ws, xs in zip(w, x, strict=True)]
        return [_lanes_to_blocks(e, sums + [e.constant(sums[0].type, 0)] * (BLOCKS // e.level.together - len(sums)))]
    if e.apart:
        return [_fours(e, [dot([(ws[h], xs[h])]) for ws, xs in zip(w, x, strict=True)]) for h in (0, 1)]
    sums = [dot([pair]) for ws, xs in zip(w, x, strict=True) for pair in zip(ws, xs, strict=True)]
    sums += [e.constant(sums[0].type, 0)] * (2 * BLOCKS // e.level.together - len(sums))
    if e.level.together == 2:  # a block each; per 128 bits of the fours: a half of four blocks
        first, last = _fours(e, sums[:4]), _fours(e, sums[4:])
        return [e.shuffle(first, last, [8 * (j // 4) + 4 * h + j % 4 for j in range(8)]) for h in (0, 1)]
    mixed = _fours(e, sums)  # two blocks each; per 128 bits: a half of every other block
    return [e.pick_in_one(mixed, lanes_of_halves(h)) for h in (0, 1)]


def half_sums(e: Generic, shape: Shape, superblock: Superblock, quants: Value) -> Value:
    """The integer sums of a superblock's half blocks with a column's quants, where a vector has four blocks: an i32x16, in which
    `lanes_of_halves` are those of the first or second halves. Type and ISA level are such that `_block_sums` ends so.
    """
    assert (
        e.level.together == 4
        and shape.n_scales == 2
        and not (e.level.dot == "pairs" or e.apart or isinstance(superblock, SignedSuperblock))
    )
    kind, places = vector(I8, 64), [(q, h) for q in range(BLOCKS // e.level.together) for h in (0, 1)]
    return _fours(
        e,
        [
            e.dot(
                [(superblock.quants(q, h), e.load(kind, quants, _vector_offset(e, shape.by_block, q, h)))],
                superblock.signed,
                superblock.most,
            )
            for q, h in places
        ],
    )


def lanes_of_halves(half: int) -> list[int]:
    """Where `half_sums` has the sums of the eight blocks' first (0) or second (1) halves."""
    return [8 * (j % 2) + 4 * half + j // 2 for j in range(8)]


def _pair_sums(e: Generic, shape: Shape, w: Sequence[Sequence[Value]], x: Sequence[Sequence[Value]]) -> list[Value]:
    """`_block_sums` of small quants: all additions but the last of each lane are of i16, twice as many at once."""
    products = [[e.pair_products(a, b) for a, b in zip(ws, xs, strict=True)] for ws, xs in zip(w, x, strict=True)]
    if shape.n_scales == 1:
        halves = [e.b.add(first, second) for first, second in products]
        halves += [e.constant(halves[0].type, 0)] * (BLOCKS // e.level.together - len(halves))
        sums = e.fours_of_pairs(_fours(e, halves))
        return [sums if e.apart else e.pick(sums, [4 * (j % 2) + j // 2 for j in range(8)])]
    if e.apart:
        return [e.fours_of_pairs(_fours(e, [pair[h] for pair in products])) for h in (0, 1)]
    blocks = [each for pair in products for each in pair]
    blocks += [e.constant(blocks[0].type, 0)] * (BLOCKS - len(blocks))
    first, last = (e.fours_of_pairs(_fours(e, part)) for part in (blocks[:4], blocks[4:]))
    return [e.shuffle(first, last, [8 * (j // 4) + 4 * h + j % 4 for j in range(8)]) for h in (0, 1)]


def _two_pair_sums(e: Generic, w: Sequence[Sequence[Value]], x: Sequence[Sequence[Value]]) -> list[Value]:
    """`_pair_sums` of half blocks with larger quants: of each four additions the first are of i16."""
    if e.apart:
        halves = [[e.pair_products(ws[h], xs[h]) for ws, xs in zip(w, x, strict=True)] for h in (0, 1)]
        return [_of_pairs(e, [e.fours_of_pairs(each) for each in _pairs(e, half)]) for half in halves]
    rows = [e.pair_products(a, b) for ws, xs in zip(w, x, strict=True) for a, b in zip(ws, xs, strict=True)]
    rows += [e.constant(rows[0].type, 0)] * (BLOCKS - len(rows))
    first, last = (_of_pairs(e, [e.fours_of_pairs(each) for each in _pairs(e, part)]) for part in (rows[:4], rows[4:]))
    return [e.shuffle(first, last, [8 * (j // 4) + 4 * h + j % 4 for j in range(8)]) for h in (0, 1)]


def _lanes_to_blocks(e: Generic, sums: Sequence[Value]) -> Value:
    """Four i32x8 or two i32x16, in which four lanes each belong to a block, to one i32x8."""
    if e.apart:
        return _fours(e, sums)
    if e.level.together == 2:
        return e.pick(_fours(e, sums), [4 * (j % 2) + j // 2 for j in range(8)])
    a, b = sums
    low = [4 * i + k for i in range(4) for k in (0, 1)]
    twos = e.b.add(
        e.shuffle(a, b, [i + s for i in low[0::2] for s in (0, 16, 1, 17)]),
        e.shuffle(a, b, [i + s for i in low[0::2] for s in (2, 18, 3, 19)]),
    )
    ones = e.b.add(twos, e.pick(twos, [4 * i + k for i in range(4) for k in (2, 3, 0, 1)]))
    return e.pick(ones, [4 * i + q for q in (0, 1) for i in range(4)])


def _fours(e: Generic, rows: Sequence[Value]) -> Value:
    """Four vectors to one: in each 128 bits, lane i (of 32 bits) is the sum of the four lanes of row i there. Lanes may be pairs
    of i16, which are added as such.
    """
    return _of_pairs(e, _pairs(e, rows))


def _pairs(e: Generic, rows: Sequence[Value]) -> list[Value]:
    """The first half of `_fours`: in each 128 bits sums of two lanes of a row and of the next one, in turns."""
    return [_together(e, rows[i], rows[i + 1], (0, 4, 1, 5), (2, 6, 3, 7)) for i in (0, 2)]


def _of_pairs(e: Generic, pairs: Sequence[Value]) -> Value:
    return _together(e, pairs[0], pairs[1], (0, 1, 4, 5), (2, 3, 6, 7))


def _together(e: Generic, a: Value, b: Value, first: Sequence[int], second: Sequence[int]) -> Value:
    """The sum of two shuffles of a and b in each 128 bits, by lanes of 32 bits: 0 to 3 are of a, 4 to 7 of b."""
    kind = a.type
    lanes = kind.count * kind.element.width // 32

    def side(pattern: Sequence[int]) -> Value:
        order = [4 * i + (lane if lane < 4 else lane - 4 + lanes) for i in range(lanes // 4) for lane in pattern]
        return e.cast(e.shuffle(e.cast(a, vector(I32, lanes)), e.cast(b, vector(I32, lanes)), order), kind)

    return e.b.add(side(first), side(second))


@dataclass(frozen=True, slots=True)
class Turned:
    """A superblock of a row, or of two: eight vectors of quants, of which each has four neighbours of every block; scales, mins (as
    `mins_of` has them) and factor with a lane per block.
    """

    quants: Sequence[Value]
    scales: Sequence[Value]
    mins: Sequence[Value] = ()
    factor: Sequence[Value] = ()


def turned_quants(e: Generic, superblock: Superblock, by_block: bool) -> list[Value]:
    """The eight vectors of a superblock's quants with a lane per block, in the order `BLOCK_OF`."""
    if superblock.turned:
        return superblock.turned()
    vectors = []
    for h in (0, 1):
        if by_block:  # a block each; of two, their halves h
            lanes = [*range(16 * h, 16 * h + 16), *range(32 + 16 * h, 48 + 16 * h)]
            rows = [e.shuffle(superblock.quants(q, 0), superblock.quants(q, 1), lanes) for q in range(4)]
        else:
            rows = [superblock.quants(q, h) for q in range(4)]
        vectors += e.turned(rows)
    return vectors


def unpack_step(e: Generic, shape: Shape, superblock: Superblock, mins: Sequence[Value], out: Value) -> None:
    """The superblock to `out`: 256 quants in the order of activations, then the vectors of scales, of `mins`, and its factor."""
    for q in range(BLOCKS // e.level.together):
        for h in (0, 1):
            e.store(superblock.quants(q, h), out, _vector_offset(e, shape.by_block, q, h))
    for index, value in enumerate([*superblock.scales, *mins, *superblock.factor]):
        e.store(value, out, SUPERBLOCK + VECTOR_BYTES * index)
