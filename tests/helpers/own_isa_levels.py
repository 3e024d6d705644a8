"""Kernels of ISA levels that a test makes up, compiled in this process, and what their products are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import numba
import numpy as np
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from test_matmul_kernels import FORMS, Kernels, activations, product, weights

from edgellm.backends.cpu.kernels.matmul import matmul, quantise
from edgellm.backends.cpu.simd import Isa
from edgellm.backends.cpu.traits import TRAITS

# One of each kind: quants with an offset, of all bytes, with mins, in place, times the scales of half blocks without and with an
# offset, with scales of half blocks, of a table.
KINDS = ["Q4_0", "Q8_0", "Q5_1", "Q4_K", "Q2_K", "Q3_K", "Q6_K", "IQ4_XS"]


def compiled(function: Callable[..., None], *, link: bool = True) -> Any:
    """Machine code is written for the whole only, not for each of its functions before; without `link` there is the whole's IR."""
    i64 = numba.types.int64
    with ExitStack() as held:
        for owner, step in ((JITCPUCodegen, "_add_module"), (JITCPUCodegen, "set_env"), (JITCodeLibrary, "_finalize_specific")):
            held.callback(setattr, owner, step, getattr(owner, step))
            setattr(owner, step, lambda *_: None)
        kernel = numba.cfunc(numba.types.void(i64, i64, i64), nopython=True, error_model="numpy", boundscheck=False)(function)
    if link:
        library = kernel._library
        library._codegen._add_module(library._final_module)
        library._finalize_specific()
        kernel._wrapper_address = library.get_pointer_to_function(kernel._wrapper_name)
    return kernel


def quantisers(isa: Isa) -> dict[str, Any]:
    """By their ids; the code lives as long as these."""
    return {f"quantise:{form}": compiled(quantise.build(form, isa)) for form in FORMS}


def columns_give_what_each_alone_gives(kernels: Kernels, isa: Isa, name: str, sizes: Iterable[tuple[int, int, int]]) -> None:
    """Bit by bit, for products of (k, n, columns), and both are right."""
    function = compiled(matmul.build(name, isa))  # lives as long as its address is called
    kernels[TRAITS[name].matmul] = function.ctypes
    for k, n, columns in sizes:
        raw, exact = weights(name, n, k)
        x, _ = activations(kernels, name, columns, k)
        got = product(kernels, name, raw, k, x, threads=2)
        alone = [product(kernels, name, raw, k, activations(kernels, name, columns, k, c)[0])[0] for c in range(columns)]
        assert np.array_equal(got, alone), (n, k, columns)
        last, values = activations(kernels, name, columns, k, columns - 1)
        assert (np.abs(product(kernels, name, raw, k, last) - values @ exact.T) <= 1e-6 * (np.abs(values) @ np.abs(exact).T)).all()
