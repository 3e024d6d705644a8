"""Rounds rows of activations to a "q8" form of traits.py, once for all products that read it."""

from __future__ import annotations

from typing import Any

from numba import types

from edgellm.backends.cpu.kernels.inline import inline, outline
from edgellm.backends.cpu.kernels.matmul.panel import X_RECORD, X_SECTIONS
from edgellm.backends.cpu.kernels.matmul.quantise_tile import larger, magnitude, quants_of, scale_of, with_starts, write_tile
from edgellm.backends.cpu.kernels.partition import first_item, lanes, tiles
from edgellm.backends.cpu.ops.dense import QUANTISE
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import F32, I8, I32, vector
from edgellm.backends.cpu.simd.generic import V8F, V8I, Generic
from edgellm.backends.cpu.traits import BLOCK, SUPERBLOCK, TILE_COLUMNS

BLOCKS_PER_SUPERBLOCK = SUPERBLOCK // BLOCK
i64 = types.int64
V32B = vector(I8, BLOCK)


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, write, tiled_rows = isa.load_i64, block_writer(variant, isa), tiles(isa)
    by_tiles = isa.level.tile != "unit"  # whose records are rows of quants
    to_tile = isa.make("full_tile", types.void, (i64,) * 3, lambda e, *a: write_tile(e, variant == "q8_by_block", *a))
    part_of_tile = isa.make("part_of_tile", types.void, (i64,) * 5, lambda e, *a: write_tile(e, variant == "q8_by_block", *a))
    arguments = QUANTISE.reader(isa, "step x x_stride k out out_stride count")

    @outline
    def to_part(source, x_stride, record, begin, end):
        part_of_tile(source, x_stride, record, begin, end)

    def q8(op, ith, nth):
        step, x, x_stride, k, out, out_stride, count = arguments(op)
        rows, filled = load_i64(step, count * 8), k // BLOCK
        superblocks = (filled + BLOCKS_PER_SUPERBLOCK - 1) // BLOCKS_PER_SUPERBLOCK
        item, end = first_item(rows, filled, ith, nth), first_item(rows, filled, ith + 1, nth)
        while item < end:  # of a tile's rows block by block, so that its records stay in the cache
            first = item // filled
            tile = first // TILE_COLUMNS * TILE_COLUMNS
            last, begin = min(tile + TILE_COLUMNS, (end + filled - 1) // filled), item % filled
            blocks, in_tile = min(filled, begin + end - item) - begin, by_tiles and last <= tiled_rows(rows)
            for index in range(blocks):  # backwards from a tile's midst: another thread writes to the same cache lines
                block = begin + blocks - 1 - index if in_tile and first > tile else begin + index
                if in_tile and (block + 1 < filled or filled % BLOCKS_PER_SUPERBLOCK == 0):
                    place = block % BLOCKS_PER_SUPERBLOCK * superblocks + block // BLOCKS_PER_SUPERBLOCK
                    source, record = x + tile * x_stride + block * BLOCK * 4, out + tile * out_stride + place * X_RECORD
                    if last - first == TILE_COLUMNS:
                        to_tile(source, x_stride, record)
                    else:
                        to_part(source, x_stride, record, first - tile, last - tile)
                    continue
                for row in range(first, last):
                    write(x + row * x_stride + block * BLOCK * 4, out, out_stride, row, rows, block, filled)
            item = last * filled

    return q8


def block_writer(variant: str, isa: Isa, *, full_tiles: bool = False) -> Any:
    """Writes one block of one of some rows; the thread with the last block clears those after it. `full_tiles`: see traits.py."""
    by_block, rows_apart = {"q8": False, "q8_by_block": isa.level.by_block}[variant], isa.level.single_column == "apart"
    halves_apart = BLOCK // 2 if by_block else 2 * BLOCK  # bytes from the first half of a block to its second
    to_row = isa.make("to_row", types.void, (i64,) * 5, lambda e, x, *to: _to_row(e, *_rounded(e, x), *to))
    halves = variant == "q8_by_block"
    to_tile = isa.make("to_tile", types.void, (i64, i64, i64), lambda e, x, *to: _to_tile(e, halves, *_rounded(e, x), *to))
    clear_row = isa.make("clear_row", types.void, (i64,) * 4, lambda e, *to: _to_row(e, *_nothing(e), *to))
    clear_tile = isa.make("clear_tile", types.void, (i64, i64), lambda e, *to: _to_tile(e, halves, *_nothing(e), *to))
    to_lanes = isa.make("to_lanes", types.void, (i64,) * 5, lambda e, x, *to: _to_lanes(e, halves, *_rounded(e, x), *to))
    clear_lanes = isa.make("clear_lanes", types.void, (i64,) * 4, lambda e, *to: _to_lanes(e, halves, *_nothing(e), *to))
    tiled_rows, in_lanes = tiles(isa, full=full_tiles), lanes(isa)

    @inline
    def write(source, out, out_stride, row, rows, block, filled):
        superblocks = (filled + BLOCKS_PER_SUPERBLOCK - 1) // BLOCKS_PER_SUPERBLOCK
        blocks = superblocks * BLOCKS_PER_SUPERBLOCK
        last = block + 1 if block + 1 < filled else blocks
        while block < last:
            to = out + row * out_stride
            if row < tiled_rows(rows):
                column = row % TILE_COLUMNS
                place = block % BLOCKS_PER_SUPERBLOCK * superblocks + block // BLOCKS_PER_SUPERBLOCK
                to += place * X_RECORD - column * out_stride
                if block < filled:
                    to_tile(source, to, column)
                else:
                    clear_tile(to, column)
            elif in_lanes(rows):
                superblock, lane = block // BLOCKS_PER_SUPERBLOCK, block % 2 * 4 + block % BLOCKS_PER_SUPERBLOCK // 2
                quants, scales = to + superblock * SUPERBLOCK + lane * 4, to + (blocks + superblock) * BLOCK + lane * 4
                if block < filled:
                    to_lanes(source, quants, BLOCK, scales, blocks * 4)
                else:
                    clear_lanes(quants, BLOCK, scales, blocks * 4)
            else:
                quants, scales, apart = to + block * BLOCK, to + blocks * BLOCK + block * 4, halves_apart
                superblock = block // BLOCKS_PER_SUPERBLOCK
                if rows_apart and filled - superblock * BLOCKS_PER_SUPERBLOCK > BLOCKS_PER_SUPERBLOCK // 2:
                    quants = to + superblock * SUPERBLOCK + block % 4 * 2 * BLOCK + block % BLOCKS_PER_SUPERBLOCK // 4 * BLOCK // 2
                    apart = BLOCK
                elif not by_block:
                    quants = to + block // 4 * 4 * BLOCK + block % 4 * BLOCK // 2
                if block < filled:
                    to_row(source, quants, apart, scales, blocks * 4)
                else:
                    clear_row(quants, apart, scales, blocks * 4)
            block += 1

    return write


def _rounded(e: Generic, x: Any) -> tuple[Any, list[Any]]:
    """Quants (i8x32) of 32 values at x, and their scale and sums."""
    b = e.b
    values = [e.load(V8F, x, 32 * i) for i in range(4)]
    sizes = [magnitude(e, value) for value in values]

    def of_two(p: Any, q: Any) -> Any:
        return larger(e, p, q)

    d, inverse = scale_of(e, e.fold(of_two(of_two(sizes[0], sizes[1]), of_two(sizes[2], sizes[3])), of_two))
    rounded = [quants_of(e, value, e.splat(inverse)) for value in values]
    low, high = e.join(rounded[0], rounded[1]), e.join(rounded[2], rounded[3])
    first, second = (e.fold(b.add(p, q), b.add) for p, q in ((rounded[0], rounded[1]), (rounded[2], rounded[3])))
    return b.trunc(e.join(low, high), V32B), [d, *(b.neg(each) for each in (b.add(first, second), first, second))]


def _nothing(e: Generic) -> tuple[Any, list[Any]]:
    return e.constant(V32B, 0), [e.constant(F32, 0.0), *[e.constant(I32, 0)] * 3]


def _to_row(e: Generic, values: Any, parts: list[Any], quants: Any, apart: Any, scales: Any, section: Any) -> None:
    for half, at in enumerate((quants, e.b.add(quants, apart))):
        e.store(e.pick(values, range(16 * half, 16 * half + 16)), at)
    for part in parts:
        e.store(part, scales)
        scales = e.b.add(scales, section)


def _to_lanes(e: Generic, halves: bool, values: Any, parts: list[Any], quants: Any, apart: Any, scales: Any, section: Any) -> None:
    words = e.cast(values, V8I)
    for g in range(BLOCK // 4):
        e.store(e.lane(words, g), e.at(quants, apart, g))
    for part in with_starts(e, halves, parts):
        e.store(part, scales)
        scales = e.b.add(scales, section)


def _to_tile(e: Generic, halves: bool, values: Any, parts: list[Any], record: Any, column: Any) -> None:
    words = e.cast(values, V8I)
    at = e.at(record, column, 4)
    if e.level.tile == "unit":
        e.store(values, e.at(record, column, BLOCK))
    else:
        for g in range(BLOCK // 4):
            e.store(e.lane(words, g), at, 4 * TILE_COLUMNS * g)
    for index, part in enumerate(with_starts(e, halves, parts)):
        e.store(part, at, X_SECTIONS + 4 * TILE_COLUMNS * index)
