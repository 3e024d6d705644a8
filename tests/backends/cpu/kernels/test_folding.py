"""Quants times the scales of their half blocks, for panels: every quant with every scale, wherever its bits are."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from own_isa_levels import compiled

from edgellm.backends.cpu import system
from edgellm.backends.cpu.kernels.matmul.folding import multiplier
from edgellm.backends.cpu.levels import LEVELS
from edgellm.backends.cpu.simd import Isa, load_isa
from edgellm.backends.cpu.simd.base import I32, vector

WIDE = [name for name in system.usable_isas() if LEVELS[name].wide_quants]
i64 = numba.types.int64


@pytest.mark.skipif(not WIDE, reason="this processor has no VNNI")
@pytest.mark.parametrize(("bits", "scales", "offset", "places"), [(2, range(16), 0, (0, 2, 4, 6)), (3, range(-32, 32), 4, (0, 5))])
def test_products_of_every_quant_and_scale(bits: int, scales: range, offset: int, places: tuple[int, ...]) -> None:
    isa = load_isa(WIDE[-1])
    quants = np.random.default_rng(0).permuted(np.resize(np.arange(1 << bits, dtype=np.uint8), (len(scales), 4 << bits)), axis=1)
    by_row = np.repeat(np.array(scales, np.int32), 1 << bits)
    quants = quants.reshape(-1, 4)
    values = quants.astype(np.int32) - offset
    expected = 128 - values * by_row[:, None] if offset else values * by_row[:, None]
    assert expected.min() >= 0 and expected.max() <= 255
    for place in places:
        function, moved, out = _function(isa, offset, place), quants << place, np.zeros_like(quants)
        for first in range(0, len(moved), isa.level.tile_rows):
            some = slice(first, first + isa.level.tile_rows)
            function.ctypes(moved[some].ctypes.data, by_row[some].ctypes.data, out[some].ctypes.data)
        assert np.array_equal(out, expected)


def _function(isa: Isa, offset: int, place: int) -> Any:
    """(quants, scales, out) of a vector of rows."""
    kind = vector(I32, isa.level.tile_rows)
    multiply = isa.make(
        "multiply",
        numba.types.void,
        (i64,) * 3,
        lambda e, quants, scales, out: e.store(multiplier(e, e.load(kind, scales), offset)(e.load(kind, quants), place), out),
    )
    return compiled(lambda quants, scales, out: multiply(quants, scales, out))
