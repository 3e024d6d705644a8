"""Parameters of tests of which the usual run takes some and the slow one the others: this machine's ISA levels, and pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgellm.backends.cpu import system

BEST = system.usable_isas()[-1]
ISA_LEVELS = [pytest.param(isa, marks=[] if isa == BEST else pytest.mark.slow) for isa in system.usable_isas()]
# For kernels without products of quants: in those avxvnni is avx2.
FLOAT_LEVELS = [level for level in ISA_LEVELS if level.values[0] != "avxvnni" or BEST == "avxvnni"]


def in_turn(names: Sequence[str], choices: Sequence[str]) -> list[Any]:
    """All pairs; the usual run has one of each name, with the choices in turn."""
    return [
        pytest.param(name, choice, marks=() if number % len(choices) == place else pytest.mark.slow)
        for number, name in enumerate(names)
        for place, choice in enumerate(choices)
    ]
