"""The abilities of a terminal, and its width."""

from __future__ import annotations

import os
import sys
from typing import TextIO

COLUMNS = 80  # where it is not known


def understands_escapes(stream: TextIO) -> bool:
    """True if a stream leads to a terminal that understands escape sequences for the cursor and dim text."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and sys.platform != "win32"


def columns(stream: TextIO) -> int:
    """The width of the terminal behind a stream."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS
