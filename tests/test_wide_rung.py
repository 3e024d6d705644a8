"""The rung of 512-bit vectors on any processor: its own kernels, with the instructions that others lack written out."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import pytest
from test_matmul_kernels import FORMS, Kernels, activations, product, weights

from edgellm.backends.cpu import system
from edgellm.backends.cpu.kernels import matmul
from edgellm.backends.cpu.kernels import quantise as quantise_kernel
from edgellm.backends.cpu.kernels.unit import shape_of
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.simd.avx512vnni import Avx512Vnni
from edgellm.backends.cpu.simd.avxvnni import AvxVnni
from edgellm.backends.cpu.simd.base import I8, vector
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.traits import TRAITS

TYPES = [name for name, traits in TRAITS.items() if traits.activation != "f32"]
QUICK = ["Q4_K", "Q6_K"]
pytestmark = pytest.mark.skipif("avx2" not in system.usable_isas(), reason="written for x86")


class Spelled(Generic):
    """Says the instructions of VNNI and AVX-512 in plain IR."""

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        if "vpdpbusd" in name:
            total, w, x = arguments
            codes = vector(I8, 4 * result.count)
            return Generic.dot(self, [(self.cast(w, codes), self.cast(x, codes))], False, 255, total)
        if "vpermi2var" in name:
            a, index, b = arguments
            return self.shuffle(a, b, [int(place.constant) for place in index.constant])
        assert ".avx512" not in name, name
        return super().call(name, result, *arguments)

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
    kept = {f"quantise:{form}": compiled(quantise_kernel.build(form, isa)) for form in FORMS}
    yield Kernels(isa.rung, ((kernel, function.ctypes) for kernel, function in kept.items()))


def compiled(function: Callable[..., None]) -> Any:
    i64 = numba.types.int64
    return numba.cfunc(numba.types.void(i64, i64, i64), nopython=True, error_model="numpy", boundscheck=False)(function)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in TYPES])
def test_two_rows_by_a_few_columns(kernels: Kernels, name: str) -> None:
    """Columns that pass two rows of weights at a time give what each alone gives, bit by bit, and both are right."""
    function = compiled(matmul.build(name, Isa(Wide)))       # lives as long as its address is called
    kernels[TRAITS[name].matmul] = function.ctypes
    for k, n, columns in ((512, 19, 3), (256, 2, 15), (768, 8, 6), (512, 35, 37)):
        raw, exact = weights(name, n, k)
        x, _ = activations(kernels, name, columns, k)
        got = product(kernels, name, raw, k, x, threads=2)
        alone = [product(kernels, name, raw, k, activations(kernels, name, columns, k, c)[0])[0] for c in range(columns)]
        assert np.array_equal(got, alone), (n, k, columns)
        last, values = activations(kernels, name, columns, k, columns - 1)
        assert (np.abs(product(kernels, name, raw, k, last) - values @ exact.T) <= 1e-6 * (np.abs(values) @ np.abs(exact).T)).all()


@pytest.mark.parametrize("name", TYPES)
def test_a_row_opens_alike_in_both_widths(name: str) -> None:
    assert shape_of(name, Avx512Vnni) == shape_of(name, AvxVnni)
