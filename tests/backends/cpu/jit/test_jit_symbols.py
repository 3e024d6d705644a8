"""Symbols of kernels that several processes have compiled."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from edgellm.backends.cpu.jit import choose_isa

FUNCTION = re.compile(rb"_ZN7edgellm[A-Za-z0-9_]*")


@pytest.mark.slow
def test_kernels_of_two_processes_share_no_helper() -> None:
    """Their helpers are closures of the same name with different contents: one linker takes the first of equal symbols."""
    found = []
    for kernel in ("encode:Q4_0", "encode:Q8_0"):
        answer = subprocess.run(
            [sys.executable, "-m", "edgellm.backends.cpu.jit.compiler", choose_isa()],
            input=kernel + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(set(FUNCTION.findall(bytes.fromhex(answer.stdout.split()[1]))))
    assert all(found) and found[0].isdisjoint(found[1])
