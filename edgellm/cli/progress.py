"""One line on stderr that says what takes so long, only when it does take long."""
from __future__ import annotations

import shutil
import sys
import threading
from types import TracebackType

from edgellm.cli.terminal import clean

PATIENCE_TERMINAL, PATIENCE_LOG = 0.3, 2.0       # seconds before anything is shown; a log needs no line for every start


class ProgressLine:
    """Shows `(what, done, of)` reports while its block runs: a passing line on a terminal, one plain line elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = self._text = what
        self._lock = threading.Lock()
        self._tty = sys.stderr.isatty()
        self._timer = threading.Timer(PATIENCE_TERMINAL if self._tty else PATIENCE_LOG, self._start)
        self._timer.daemon = True
        self._late = self._printed = False
        self._width = 0

    def __call__(self, what: str, done: int, of: int) -> None:
        """Report: `done` of `of` steps of `what` are behind us."""
        with self._lock:
            self._what, self._text = what, f"{what} {done}/{of}" if of > 1 else what
            if self._late:
                self._show()

    def __enter__(self) -> ProgressLine:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._late = False
            if self._width:
                self._write("")

    def _start(self) -> None:
        with self._lock:
            self._late = True
            self._show()

    def _show(self) -> None:
        if self._tty:
            self._write(f"{clean(self._text)} ...")
        elif not self._printed:
            self._printed = True
            print(f"{clean(self._what)} ...", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        """Replace the line: carriage return and spaces work on every terminal."""
        text = text[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
        sys.stderr.flush()
        self._width = len(text)
