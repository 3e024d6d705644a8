"""granitemoe: Granite 3 with experts; all else as granite has it."""

from __future__ import annotations

from edgellm.arch.granite import build

__all__ = ["build"]
