"""The seed of a test of random inputs: the same at each run, so that a gate says the same twice, or the one asked for."""

from __future__ import annotations

import os

VARIABLE = "EDGELLM_TEST_SEED"


def seed(usual: int) -> int:
    """`usual`, or what EDGELLM_TEST_SEED says ("random" for a new one); printed, so that pytest shows it beside a failure."""
    asked = os.environ.get(VARIABLE, "")
    chosen = int.from_bytes(os.urandom(4)) if asked == "random" else int(asked or usual)
    print(f"{VARIABLE}={chosen}")
    return chosen
