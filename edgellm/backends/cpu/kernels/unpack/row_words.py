"""The words of a superblock of a group of rows, a lane per row, as IR: of rows as the file has them, or interleaved in memory.

Offsets are those in the file, in bytes from the beginning of a superblock of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from edgellm.backends.cpu.kernels.unpack.superblock import raw_superblock_bytes
from edgellm.backends.cpu.simd.base import I8, I16, I32, I64, Value, vector
from edgellm.backends.cpu.simd.generic import Blocks, Generic
from edgellm.backends.cpu.traits import SUPERBLOCK, TRAITS
from edgellm.formats.interleave import places

SMALL_BLOCK = 18  # bytes, of Q4_0 and IQ4_NL
There = Callable[[int], AbstractContextManager[Any]]  # of a row's end: what is written within is done where a block exists


class RowWords(Protocol):
    """Vectors with a lane per row."""

    e: Generic

    def word(self, offset: int) -> Value:
        """i32."""

    def words(self, offset: int, n: int) -> Sequence[Value]:
        """i32: n words that follow each other."""

    def octet(self, offset: int) -> Value:
        """i8."""

    def f16(self, offset: int) -> Value:
        """f32, of an f16."""


class FileRows:
    """Rows one after the other, of which each has a superblock of a type of 256 at one of these addresses. No byte comes from
    outside of it: it could be the last one of a file.
    """

    def __init__(self, e: Generic, rows: Sequence[Value], nbytes: int) -> None:
        self.e, self._rows, self._nbytes = e, rows, nbytes
        self._fours: dict[int, Sequence[Value]] = {}

    def word(self, offset: int) -> Value:
        start = min(offset - offset % 16, (self._nbytes - 16) // 4 * 4)
        return self._four(start)[(offset - start) // 4]

    def words(self, offset: int, n: int) -> Sequence[Value]:
        return [self.word(offset + 4 * i) for i in range(n)]

    def f16(self, offset: int) -> Value:
        return self.e.from_f16(self.half(offset))

    def half(self, offset: int) -> Value:
        """i16."""
        at_end, upper = offset + 2 == self._nbytes, offset % 4 == 2 or offset + 2 == self._nbytes
        word = self._four(self._nbytes - 16)[3] if at_end else self.word(offset - offset % 4)
        half = self.e.b.lshr(word, 16) if upper else word
        return self.e.b.trunc(half, vector(I16, self.e.level.tile_rows))

    def octet(self, offset: int) -> Value:
        raise NotImplementedError  # no type of 256 has an odd byte

    def _four(self, start: int) -> Sequence[Value]:
        if start not in self._fours:
            self._fours[start] = _four_words(self.e, self._rows, start)
        return self._fours[start]


class FileBlocks:
    """The same of a block of a type of 32, which has 16 bytes at least. No byte comes from outside of it."""

    def __init__(self, e: Generic, rows: Sequence[Value]) -> None:
        self.e, self._rows, self._first = e, rows, _four_words(e, rows, 0)

    def word(self, offset: int) -> Value:
        words, (index, shift) = self._first, divmod(offset, 4)
        if not shift:
            return words[index]
        low, high = (self.e.constant(words[0].type, 8 * n) for n in (shift, 4 - shift))
        return self.e.b.or_(self.e.b.lshr(words[index], low), self.e.b.shl(words[index + 1], high))

    def words(self, offset: int, n: int) -> Sequence[Value]:
        return [word for start in range(offset, offset + 4 * n, 16) for word in _four_words(self.e, self._rows, start)]

    def octet(self, offset: int) -> Value:
        return self._part(offset, I8)

    def f16(self, offset: int) -> Value:
        return self.e.from_f16(self._part(offset, I16))

    def _part(self, offset: int, element: Any) -> Value:
        """A part of the first 16 bytes."""
        return _shifted(self.e, self._first[offset // 4], offset % 4 * 8, element)


class FileSuperblocks(FileBlocks):
    """The same of eight blocks of `SMALL_BLOCK` bytes: a scale and quants of 4 bits. Scales are read together; one by one they
    would be half of what is loaded.
    """

    def __init__(self, e: Generic, rows: Sequence[Value]) -> None:
        super().__init__(e, rows)
        eights = [e.each_word(self._blocks(row), 0, 1) for row in rows]
        self._pairs = e.lane_per_row([e.cast(eight, vector(I32, 4)) for eight in eights])

    def f16(self, offset: int) -> Value:
        block, place = divmod(offset, SMALL_BLOCK)
        assert not place
        return self.e.from_f16(_shifted(self.e, self._pairs[block // 2], block % 2 * 16, I16))

    def _blocks(self, row: Value) -> Blocks:
        return Blocks(lambda block: self.e.b.add(row, block * SMALL_BLOCK), SMALL_BLOCK)


def _shifted(e: Generic, word: Value, shift: int, element: Any) -> Value:
    moved = e.b.lshr(word, shift) if shift else word
    return e.b.trunc(moved, vector(element, e.level.tile_rows))


def _four_words(e: Generic, rows: Sequence[Value], start: int) -> Sequence[Value]:
    """Four words of all rows, of which LLVM leaves out those that are not used."""
    return e.lane_per_row([e.load(vector(I32, 4), row, start) for row in rows])


class InterleavedRows:
    """Rows as `interleave.interleaved` lays them out, of which a superblock begins at `address`."""

    def __init__(self, e: Generic, name: str, address: Value) -> None:
        self.e, self._name, self.address, self._stride = e, name, address, TRAITS[name].block_bytes

    def word(self, offset: int) -> Value:
        return self._load(I32, offset)

    def words(self, offset: int, n: int) -> Sequence[Value]:
        return [self.word(offset + 4 * i) for i in range(n)]

    def octet(self, offset: int) -> Value:
        return self._load(I8, offset)

    def f16(self, offset: int) -> Value:
        e, unit = self.e, offset - offset % 4
        if offset % self._stride in places(self._name) and places(self._name)[offset % self._stride][0] == 2:
            return e.from_f16(self._load(I16, offset))
        word, kind = self.word(unit), vector(I16, e.level.tile_rows)
        return e.from_f16(e.b.trunc(e.b.lshr(word, 16) if offset > unit else word, kind))

    def _load(self, element: Any, offset: int) -> Value:
        block, offset = divmod(offset, self._stride)
        _, place = places(self._name)[offset]
        value = self.e.load(
            vector(element, self.e.level.tile_rows), self.address, (block * self._stride + place) * self.e.level.tile_rows
        )
        self.e.keep_order()
        return value


def each_superblock(
    e: Generic, name: str, weights: Value, k: Value, use: Callable[[Value, InterleavedRows, There, Value | None], None]
) -> None:
    """`use(index, words, there, blocks)` of each superblock of a group of interleaved rows of k weights. `blocks`: how many the
    last one has, where these are less than eight.
    """
    b, nbytes = e.b, I64(raw_superblock_bytes(name) * e.level.tile_rows)

    def words(index: Value) -> InterleavedRows:
        return InterleavedRows(e, name, e.at(weights, index, nbytes))

    full = b.sdiv(k, SUPERBLOCK)
    with e.loop(full) as index:
        use(index, words(index), lambda block: nullcontext(), None)
    if TRAITS[name].block != SUPERBLOCK:
        rest = b.sdiv(b.srem(k, SUPERBLOCK), TRAITS[name].block)
        with b.if_then(b.icmp_signed(">", rest, 0)):
            use(full, words(full), lambda block: b.if_then(b.icmp_signed("<", block, rest)), rest)
