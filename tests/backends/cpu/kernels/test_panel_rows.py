"""Types whose superblocks are opened for a group of rows at once: what they read, and that nothing of a panel is left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from llvmlite import ir

from edgellm.backends.cpu.kernels.unpack.panel_rows import BLOCK_OPENERS, OPENERS, open_block, open_rows
from edgellm.backends.cpu.kernels.unpack.row_words import SMALL_BLOCK, FileBlocks, FileRows, FileSuperblocks, InterleavedRows
from edgellm.backends.cpu.kernels.unpack.superblock import BLOCKS, raw_superblock_bytes, shape_of
from edgellm.backends.cpu.simd.avx512vnni import Avx512Vnni
from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.traits import BLOCK, TRAITS
from edgellm.formats.interleave import places


class Counted(Avx512Vnni):
    """Notes which bytes after an address are loaded."""

    def load(self, kind: Any, address: Any, offset: int = 0) -> Any:
        nbytes = kind.count * kind.element.width // 8
        self.read.update(range(offset, offset + nbytes))
        return super().load(kind, address, offset)


class Filled:
    """Counts what a target is handed."""

    def __init__(self) -> None:
        self.parts, self.numbers, self.blocks = Counter[tuple[int, int]](), Counter[tuple[int, int]](), Counter[int]()

    def quants(self, block: int, g: int, value: Any, place: int = 0) -> None:
        assert not self.blocks[block]
        self.parts[block, g] += 1

    def number(self, block: int, index: int, value: Any) -> None:
        assert not self.blocks[block]
        self.numbers[block, index] += 1

    def done(self, block: int) -> None:
        self.blocks[block] += 1


def level() -> Counted:
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [I64]), "probe")
    e = Counted(ir.IRBuilder(function.append_basic_block()))
    e.address, e.read = function.args[0], set[int]()
    return e


SMALL_BLOCKS = [name for name in BLOCK_OPENERS if TRAITS[name].block_bytes == SMALL_BLOCK]


@pytest.mark.parametrize("name", [*OPENERS, *BLOCK_OPENERS])
def test_reads_all_of_an_interleaved_superblock(name: str) -> None:
    e = level()
    all_of_superblock(e, name, InterleavedRows(e, name, e.address))
    assert e.read == set(range(raw_superblock_bytes(name) * e.level.tile_rows))


@pytest.mark.parametrize("name", [*OPENERS, *SMALL_BLOCKS])
def test_reads_inside_a_superblock_and_gives_all_of_it(name: str) -> None:
    e, nbytes = level(), raw_superblock_bytes(name)
    rows = [e.address] * e.level.tile_rows
    all_of_superblock(e, name, FileSuperblocks(e, rows) if name in SMALL_BLOCKS else FileRows(e, rows, nbytes))
    assert e.read == set(range(nbytes))


@pytest.mark.parametrize("name", BLOCK_OPENERS)
def test_reads_inside_a_block_and_gives_all_of_it(name: str) -> None:
    e, filled = level(), Filled()
    open_block(e, name, FileBlocks(e, [e.address] * e.level.tile_rows), filled)
    assert e.read == set(range(TRAITS[name].block_bytes))
    assert filled.parts == Counter((0, g) for g in range(BLOCK // 4))
    assert filled.numbers == Counter((0, index) for index in range(shape_of(name, Avx512Vnni).n_vectors))
    assert filled.blocks == Counter([0])


def all_of_superblock(e: Counted, name: str, words: Any) -> None:
    filled = Filled()
    open_rows(e, name, words, filled)
    assert filled.parts == Counter((block, g) for block in range(BLOCKS) for g in range(BLOCK // 4))
    assert filled.numbers == Counter(
        (block, index) for block in range(BLOCKS) for index in range(shape_of(name, Avx512Vnni).n_vectors)
    )
    assert filled.blocks == Counter(range(BLOCKS))


@pytest.mark.parametrize("name", [*OPENERS, *BLOCK_OPENERS])
def test_interleaved_words_are_read_in_their_order(name: str) -> None:
    """Processors prefetch this order best; some words are read a second time."""

    class Noted(InterleavedRows):
        def _load(self, element: Any, offset: int) -> Any:
            block, offset = divmod(offset, TRAITS[name].block_bytes)
            order.append(block * TRAITS[name].block_bytes + places(name)[offset][1])
            return super()._load(element, offset)

    order = list[int]()
    e = level()
    open_rows(e, name, Noted(e, name, e.address), Filled())
    first = list(dict.fromkeys(order))
    assert first == sorted(first)
