"""Types whose superblocks are opened for a group of rows at once: what they read, and that nothing of a panel is left out."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from llvmlite import ir

from edgellm.backends.cpu.kernels.panel_rows import OPENERS
from edgellm.backends.cpu.kernels.superblock import BLOCKS, raw_superblock_bytes, shape_of
from edgellm.backends.cpu.simd.avx512vnni import Avx512Vnni
from edgellm.backends.cpu.simd.base import I32, vector
from edgellm.backends.cpu.traits import BLOCK


@pytest.mark.parametrize("name", OPENERS)
def test_reads_inside_a_superblock_and_fills_a_panel(name: str) -> None:
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [vector(I32, Avx512Vnni.tile_rows)] * 4), "probe")
    e = Avx512Vnni(ir.IRBuilder(function.append_basic_block()))
    read: set[int] = set()
    quants: Counter[tuple[int, int]] = Counter()
    numbers: Counter[tuple[int, int]] = Counter()

    def words(offset: int) -> list[Any]:
        read.update(range(offset, offset + 16))
        return list(function.args)

    OPENERS[name](e, words, lambda block, g, _: quants.update([(block, g)]),
                  lambda block, index, _: numbers.update([(block, index)]))
    shape = shape_of(name, Avx512Vnni)
    assert read == set(range(raw_superblock_bytes(name)))
    assert quants == Counter((block, g) for block in range(BLOCKS) for g in range(BLOCK // 4))
    assert numbers == Counter((block, index) for block in range(BLOCKS) for index in range(shape.n_vectors))
