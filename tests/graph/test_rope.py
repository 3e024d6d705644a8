"""Rotary frequencies against the formulas of the papers, and turns against complex numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgellm.backends.cpu.step_block import AHEAD, RopeTable
from edgellm.graph import RopeSpec
from edgellm.ops.rope import turn
from edgellm.rope import frequencies, yarn_magnitude


def test_plain_and_linear() -> None:
    rates, magnitude = frequencies(RopeSpec(8, "norm", 10000.0))
    assert magnitude == 1.0 and rates.dtype == np.float64
    assert rates == pytest.approx([1.0, 10000.0**-0.25, 10000.0**-0.5, 10000.0**-0.75], rel=1e-15)
    assert frequencies(RopeSpec(8, "norm", 10000.0, freq_scale=0.125))[0] == pytest.approx(rates / 8, rel=1e-15)


def test_factors_divide() -> None:
    factors = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    rates, magnitude = frequencies(RopeSpec(8, "neox", 500.0, factors="f", magnitude=1.2), factors)
    assert rates == pytest.approx(frequencies(RopeSpec(8, "neox", 500.0))[0] / factors, rel=1e-15) and magnitude == 1.2


def test_yarn_leaves_fast_pairs_and_scales_slow_ones() -> None:
    # 16 dims, base 10000: n turns in a context c lie at pair 8 * ln(c / (2 pi n)) / ln(10000), cut to whole pairs:
    # c = 64: 32 turns before pair 0, one at 2.02, so the ramp ends at 3; c = 4096: 2.62 and 5.63, a ramp from 2 to 6
    plain = frequencies(RopeSpec(16, "norm", 10000.0))[0]
    for context, shares in ((64, [1, 2 / 3, 1 / 3, 0, 0, 0, 0, 0]), (4096, [1, 1, 1, 0.75, 0.5, 0.25, 0, 0])):
        spec, kept = RopeSpec(16, "norm", 10000.0, freq_scale=1 / 8, yarn=(1.0, 32.0, 1.0, context)), np.array(shares)
        assert frequencies(spec)[0] == pytest.approx(plain * kept + plain / 8 * (1 - kept), rel=1e-12)
    none = RopeSpec(16, "norm", 10000.0, freq_scale=1 / 8, yarn=(0.0, 32.0, 1.0, 64))
    assert frequencies(none)[0] == pytest.approx(plain / 8, rel=1e-12)


def test_yarn_magnitude() -> None:
    assert yarn_magnitude(8.0) == pytest.approx(0.1 * math.log(8.0) + 1.0)
    assert yarn_magnitude(1.0) == yarn_magnitude(0.5) == 1.0


@pytest.mark.parametrize("style", ["norm", "neox"])
def test_turn_is_a_complex_product_and_leaves_the_rest(style: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 10)).astype(np.float32)
    angles = rng.standard_normal(4)
    spec = RopeSpec(8, style, 10000.0)  # type: ignore[arg-type]  # a parameter of the test
    y = turn(x, spec, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    first, second = (slice(0, 8, 2), slice(1, 8, 2)) if style == "norm" else (slice(0, 4), slice(4, 8))
    wanted = (x[:, first] + 1j * x[:, second]) * np.exp(1j * angles)
    assert np.allclose(y[:, first], wanted.real, atol=1e-6) and np.allclose(y[:, second], wanted.imag, atol=1e-6)
    assert np.array_equal(y[:, 8:], x[:, 8:])


def test_angles_stay_exact_far_out() -> None:
    rates, _ = frequencies(RopeSpec(2, "norm", 10000.0))
    assert math.cos(10**7 * rates[0]) == pytest.approx(math.cos(10**7), abs=1e-9)


def test_single_positions_are_those_of_a_prompt() -> None:
    """Tables of one token, wherever it goes next, hold the bits that they have among many."""
    table = RopeTable(RopeSpec(64, "neox", 10000.0, magnitude=1.1), None, {"T": 2 * AHEAD, "R": 1})
    every, wanted = table.of("T"), table.of("R")
    first, rows = 1000, np.zeros(1, np.int32)
    table.fill(np.arange(first, first + 2 * AHEAD), rows)
    expected = [each.copy() for each in every]
    for place in (0, 1, AHEAD - 1, AHEAD, 2 * AHEAD - 1, AHEAD // 2, 0):
        table.fill_one(first + place)
        for mine, of_rows, given in zip(every, wanted, expected, strict=True):
            assert mine[0].tolist() == of_rows[0].tolist() == given[place].tolist()
