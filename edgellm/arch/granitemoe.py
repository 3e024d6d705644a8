"""granitemoe: Granite 3 with experts; the graph of granite."""

from __future__ import annotations

from edgellm.arch.granite import build

__all__ = ["build"]
