"""nemotron_h_moe: Nemotron 3 Nano and Super; all else as nemotron_h has it."""

from __future__ import annotations

from edgellm.arch.nemotron_h import build

__all__ = ["build"]
