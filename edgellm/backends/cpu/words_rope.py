"""Argument words of rotations: apart from words.py, for whatever changes there has all kernels compiled again."""

from __future__ import annotations

from edgellm.backends.cpu.words import ROPE, Words

ROPE_ROWS = Words(" ".join([*ROPE.names, "count"]))
