"""The ISA level of 512-bit vectors on any processor: its own kernels, with the instructions that others lack written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from own_isa_levels import KINDS, columns_give_what_each_alone_gives, quantisers
from test_matmul_kernels import Kernels

from edgellm.backends.cpu import system
from edgellm.backends.cpu.kernels.unpack.superblock import shape_of
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.avx512vnni import Avx512Vnni
from edgellm.backends.cpu.simd.avxvnni import AvxVnni
from edgellm.backends.cpu.simd.base import I8, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import TRAITS

TYPES = [name for name, traits in TRAITS.items() if traits.activation != "f32"]
QUICK = ["Q4_K"]
# more kinds of rows: three bits, a grid, base 3, a scale for 16 of a table
SLOW = sorted({*KINDS, "Q3_K", "IQ2_S", "TQ1_0", "NVFP4"} - {*QUICK})
pytestmark = pytest.mark.skipif("avx2" not in system.usable_isas(), reason="written for x86")


class Spelled(Generic):
    """Says the instructions of VNNI and AVX-512 in plain IR."""

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        if "vpdpbusd" in name:
            total, w, x = arguments
            quants = vector(I8, 4 * result.count)
            return Generic.dot(self, [(self.cast(w, quants), self.cast(x, quants))], False, 255, total)
        if "vpermi2var" in name:  # of words or of pairs of them
            a, index, b = arguments
            return self.shuffle(a, b, [int(place.constant) for place in index.constant])
        if "pshuf.b.512" in name:  # bytes within each 128 bits: two of AVX2's
            halves = [[self.shuffle(each, each, [*range(at, at + 32)]) for each in arguments] for at in (0, 32)]
            low, high = (super(Spelled, self).call("llvm.x86.avx2.pshuf.b", vector(I8, 32), *half) for half in halves)
            return self.shuffle(low, high, [*range(64)])
        assert ".avx512" not in name, name
        return super().call(name, result, *arguments)

    opaque = Generic.opaque
    times_power = Generic.times_power
    pick_in_one = Generic.pick_in_one

    def lookup(self, table: Any, index: Any) -> Any:
        return Generic.lookup(self, table, index)


class OneRow(Spelled, AvxVnni):
    pass


class Wide(Spelled, Avx512Vnni):
    def of_one_row(self) -> AvxVnni:
        return OneRow(self.b)


@pytest.fixture(scope="module")
def kernels() -> Iterator[Kernels]:
    isa = Isa(Wide)
    kept = quantisers(isa)
    yield Kernels(isa.level, ((kernel, function.ctypes) for kernel, function in kept.items()))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_a_few_columns_side_by_side(kernels: Kernels, name: str) -> None:
    """Columns that pass two rows of weights side by side give what each alone gives, bit by bit, and both are right."""
    if name in SLOW and "avx512vnni" in system.usable_isas():
        pytest.skip("this processor has the ISA level: test_matmul_kernels.py and test_rare_types.py run its own kernels")
    sizes = ((512, 19, 3), (256, 2, 15), (768, 8, 6), (512, 35, 37))
    columns_give_what_each_alone_gives(kernels, Isa(Wide), name, sizes)


@pytest.mark.parametrize("name", TYPES)
def test_a_row_opens_alike_in_both_widths(name: str) -> None:
    assert shape_of(name, Avx512Vnni) == shape_of(name, AvxVnni)
