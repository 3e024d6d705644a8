"""Kernels of the types that few files have: those of test_matmul_kernels.py, a few of them on every ISA level, the others on the
best one, most in the slow run.
"""

from __future__ import annotations

from typing import Any

import pytest
import test_matmul_kernels as common
from isa_levels import BEST

from edgellm.backends.cpu import jit, system

QUICK = ("IQ2_S", "IQ1_M", "TQ1_0", "NVFP4")  # signs and points of a grid, moved points, base 3, blocks of 64
CASES = [
    pytest.param(name, isa_level, marks=[] if isa_level == BEST and name in QUICK else pytest.mark.slow, id=f"{name}-{isa_level}")
    for name in common.RARE
    for isa_level in system.usable_isas()
    if isa_level == BEST or name in QUICK
]


@pytest.mark.parametrize(("name", "isa_level"), CASES)
def test_products_and_embeddings(name: str, isa_level: str) -> None:
    linker = jit.Linker()
    kernels: Any = common.compiled(isa_level, linker)
    common.test_embedding_is_the_codecs(kernels, name)
    common.test_products(kernels, name)
    common.test_nothing_is_read_past_the_last_row(kernels, name)
    assert linker  # the code lives as long as it does
