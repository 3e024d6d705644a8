"""Groups of rows of types whose bits change places in memory, to where formats/interleave.py has them: faster than by NumPy."""

from __future__ import annotations

import functools

from numba import types

from edgellm.backends.cpu.interleaving import REPACK
from edgellm.backends.cpu.kernels.unpack.panel_rows import bits, open_rows
from edgellm.backends.cpu.kernels.unpack.row_words import FileRows
from edgellm.backends.cpu.kernels.unpack.superblock import raw_superblock_bytes
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import Value
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import SUPERBLOCK
from edgellm.formats.interleave import PACKED, places


def build(variant: str, isa: Isa) -> KernelFunction:
    i64, rows = types.int64, isa.level.tile_rows
    arguments = REPACK.reader(isa, "source row_bytes n k out")
    repack = isa.make("repack", types.void, (i64,) * 4, lambda e, *a: _group(e, variant, *a))

    def each_group(op, ith, nth):
        source, row_bytes, n, k, out = arguments(op)
        groups, group_bytes = n // rows, rows * row_bytes
        for group in range(groups * ith // nth, groups * (ith + 1) // nth):
            repack(source + group * group_bytes, row_bytes, k, out + group * group_bytes)

    return each_group


class _Quants:
    """Keeps the quants of a superblock: see panel_rows.Target."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], Value] = {}

    def quants(self, block: int, g: int, value: Value, place: int = 0) -> None:
        assert not place
        self.found[block, g] = value

    def number(self, block: int, index: int, value: Value) -> None:
        """Scales stay as they are."""

    def done(self, block: int) -> None:
        """All of it is there."""


def _group(e: Generic, name: str, source: Value, row_bytes: Value, k: Value, out: Value) -> None:
    b, nbytes = e.b, raw_superblock_bytes(name)
    with e.loop(b.sdiv(k, SUPERBLOCK)) as index:
        at = e.at(source, index, nbytes)
        words = FileRows(e, [e.at(at, row_bytes, row) for row in range(e.level.tile_rows)], nbytes)
        _superblock(e, name, words, e.at(out, index, nbytes * e.level.tile_rows))


def _superblock(e: Generic, name: str, words: FileRows, out: Value) -> None:
    quants = _Quants()
    open_rows(e, name, words, quants)
    fields = [(field, block) for block, fields in enumerate(PACKED[name]) for field in fields]
    for offset, (size, place) in places(name).items():
        parts = [(field, block) for field, block in fields if field.at <= offset < field.at + 32]
        if parts:
            g = (offset - parts[0][0].at) // 4
            value = functools.reduce(
                e.b.or_,
                [
                    bits(e, quants.found[block, g], field.bit - field.shift, (1 << field.n) - 1 << field.shift)
                    for field, block in parts
                ],
            )
        else:
            value = words.half(offset) if size == 2 else words.word(offset)
        e.store(value, out, place * e.level.tile_rows)
