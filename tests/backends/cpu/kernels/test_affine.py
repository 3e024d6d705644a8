"""Groups of affine quants as float32, of every width, at every ISA level."""

from __future__ import annotations

import numpy as np
import pytest
from isa_levels import FLOAT_LEVELS

from edgellm.backends.cpu.affine import BITS, AffineDecoder


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
def test_codes_of_every_width(isa: str) -> None:
    """Rows that end where their memory does: a byte more than there is would be another array's."""
    decoder, rng = AffineDecoder(BITS, isa), np.random.default_rng(3)
    for bits in BITS:
        codes = rng.integers(0, 1 << bits, (5, 192))
        alone = codes[..., None] >> np.arange(bits) & 1
        quants = np.packbits(alone.astype(np.uint8).reshape(5, -1), axis=-1, bitorder="little").view(np.uint32)
        for group in (16, 32, 64):
            steps, lows = (rng.standard_normal((5, 192 // group)).astype(np.float32) for _ in range(2))
            out = np.full((5, 192), np.nan, np.float32)
            decoder.decode(bits, quants, steps, lows, out)
            wanted = codes * np.repeat(steps.astype(np.float64), group, axis=1) + np.repeat(lows, group, axis=1)
            np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
