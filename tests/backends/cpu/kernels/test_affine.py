"""Groups of affine quants of every width: as float32 at every ISA level, and in products with few rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import FLOAT_LEVELS

from edgellm.backends.cpu.affine import BITS, AffineKernels

COLUMNS, ROWS = 192, 5
LEVELS = [getattr(level, "values", [level])[0] for level in FLOAT_LEVELS]


def some_groups(bits: int, group: int) -> tuple[npt.NDArray[np.uint32], list[npt.NDArray[np.float32]], npt.NDArray[np.float64]]:
    """Quants, steps and lows, and the weights that they are. Rows end where their memory does."""
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 1 << bits, (ROWS, COLUMNS))
    alone = codes[..., None] >> np.arange(bits) & 1
    quants = np.packbits(alone.astype(np.uint8).reshape(ROWS, -1), axis=-1, bitorder="little").view(np.uint32)
    ends = [rng.standard_normal((ROWS, COLUMNS // group)).astype(np.float32) for _ in range(2)]
    steps, lows = (np.repeat(end.astype(np.float64), group, axis=1) for end in ends)
    return quants, ends, codes * steps + lows


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
def test_codes_of_every_width(isa: str) -> None:
    kernels = AffineKernels(BITS, (), isa)
    for bits in BITS:
        for group in (16, 32, 64):
            quants, ends, wanted = some_groups(bits, group)
            out = np.full((ROWS, COLUMNS), np.nan, np.float32)
            kernels.decode(bits, quants, *ends, out)
            np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("bits", "isa"), [(bits, LEVELS[at % len(LEVELS)]) for at, bits in enumerate(BITS)])
def test_products_with_few_rows(bits: int, isa: str) -> None:
    """15 rows go through tiles of every width; no sum depends on other rows, and nothing else is written."""
    rng, kernels = np.random.default_rng(3), AffineKernels((bits,), ("F32",), isa)
    for group in (16, 32, 64):
        quants, ends, weights = some_groups(bits, group)
        x, out = rng.standard_normal((15, COLUMNS)).astype(np.float32), np.full((15, ROWS + 2), np.nan, np.float32)
        kernels.product(bits, quants, *ends, x, out[:, 1:-1])
        wanted = x @ weights.T
        np.testing.assert_allclose(out[:, 1:-1], wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
        assert np.isnan(out[:, [0, -1]]).all()
        for row in range(15):
            alone = np.empty((1, ROWS), np.float32)
            kernels.product(bits, quants, *ends, x[row : row + 1], alone)
            np.testing.assert_array_equal(alone, out[row : row + 1, 1:-1])


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_steps_of_16_bits(kind: str) -> None:
    kernels, (quants, ends, _) = AffineKernels((4,), (kind, "F32")), some_groups(4, 32)
    short = [end.astype(np.float16) if kind == "F16" else (end.view(np.uint32) >> 16).astype(np.uint16) for end in ends]
    wide = [end.astype(np.float32) if kind == "F16" else (end.astype(np.uint32) << 16).view(np.float32) for end in short]
    x = np.random.default_rng(4).standard_normal((3, COLUMNS)).astype(np.float32)
    out, wanted = (np.empty((3, ROWS), np.float32) for _ in range(2))
    kernels.product(4, quants, *short, x, out)
    kernels.product(4, quants, *wide, x, wanted)
    np.testing.assert_array_equal(out, wanted)
