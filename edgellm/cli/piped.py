"""Text from standard input, when something other than a keyboard is connected to it."""
from __future__ import annotations

import os
import sys
import threading
import time

PATIENCE = 3.0           # seconds for the first byte: some programs start others with a pipe that they never close


class PipedText:
    """Reads stdin in the background from the moment it is made, so that a model loads meanwhile."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._something = threading.Event()          # the first byte, or the end
        self._started = time.monotonic()
        self._reader: threading.Thread | None = None
        if sys.stdin is not None and not sys.stdin.isatty():
            self._reader = threading.Thread(target=self._read, args=(sys.stdin.fileno(),), daemon=True)
            self._reader.start()

    @property
    def connected(self) -> bool:
        """Whether stdin is a file or pipe."""
        return self._reader is not None

    def _read(self, descriptor: int) -> None:
        try:
            # not sys.stdin: Python aborts at its end when a thread waits in a buffered reader
            while chunk := os.read(descriptor, 1 << 16):
                self._chunks.append(chunk)
                self._something.set()
        except OSError:
            pass                                     # a closed descriptor has no text
        self._something.set()

    def text(self, *, wait: bool) -> str | None:
        """All of it, up to its end. Without `wait`, None if no byte came within `PATIENCE` seconds of the start."""
        if self._reader is None:
            return ""
        patience = None if wait else max(0.0, self._started + PATIENCE - time.monotonic())
        if not self._something.wait(patience):
            return None
        self._reader.join()
        return b"".join(self._chunks).decode("utf-8", errors="replace")
