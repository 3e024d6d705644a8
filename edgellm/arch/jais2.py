"""jais2: Jais 2; nemotron with biases everywhere."""

from __future__ import annotations

from edgellm.arch.nemotron import build

__all__ = ["build"]
