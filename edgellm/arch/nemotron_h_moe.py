"""nemotron_h_moe: Nemotron 3 Nano and Super; the graph of nemotron_h."""

from __future__ import annotations

from edgellm.arch.nemotron_h import build

__all__ = ["build"]
