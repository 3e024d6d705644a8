"""Types whose superblocks are opened for a group of rows at once: what they read, and that nothing of a panel is left out."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from llvmlite import ir

from edgellm.backends.cpu.kernels.panel_rows import BLOCK_OPENERS, OPENERS, open_rows
from edgellm.backends.cpu.kernels.row_words import FileRows, InterleavedRows
from edgellm.backends.cpu.kernels.superblock import BLOCKS, raw_superblock_bytes, shape_of
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


@pytest.mark.parametrize("name", [*OPENERS, *BLOCK_OPENERS])
@pytest.mark.parametrize("interleaved", [False, True])
def test_reads_inside_a_superblock_and_gives_all_of_it(name: str, interleaved: bool) -> None:
    if not interleaved and name in BLOCK_OPENERS:
        pytest.skip("opened row by row")
    e, filled, nbytes = level(), Filled(), raw_superblock_bytes(name)
    words = InterleavedRows(e, name, e.address) if interleaved else FileRows(e, [e.address] * e.tile_rows, nbytes)
    open_rows(e, name, words, filled)
    shape = shape_of(name, Avx512Vnni)
    assert e.read == set(range(nbytes * (e.tile_rows if interleaved else 1)))
    assert filled.parts == Counter((block, g) for block in range(BLOCKS) for g in range(BLOCK // 4))
    assert filled.numbers == Counter((block, index) for block in range(BLOCKS) for index in range(shape.n_vectors))
    assert filled.blocks == Counter(range(BLOCKS))


@pytest.mark.parametrize("name", [*OPENERS, *BLOCK_OPENERS])
def test_interleaved_words_are_read_in_their_order(name: str) -> None:
    """What processors prefetch best; some are read a second time."""
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
