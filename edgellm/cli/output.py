"""The two streams of the command line: the answer on stdout, all else on stderr."""
from __future__ import annotations

import os
import sys
from typing import TextIO

from edgellm.cli.terminal import Filter, clean


class Answer:
    """Writes a model's text to stdout as it comes: filtered, except raw text into a pipe or file.

    `reply`: it answers a message, so that white space before its first word means nothing.
    """

    def __init__(self, *, raw: bool = False, reply: bool = False) -> None:
        self._raw, self._at_start = raw and not sys.stdout.isatty(), reply
        self._filter = Filter()
        self._at_line_start = True

    def write(self, piece: str) -> None:
        """Print the next piece at once."""
        text = piece if self._raw else self._filter(piece)
        if self._at_start:
            text = text.lstrip()
        if text:
            self._at_start = False
            sys.stdout.write(text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def end(self) -> None:
        """Finish the line, so that a prompt or the next command starts on its own; raw text stays as it is."""
        if not self._raw and not self._at_line_start:
            sys.stdout.write("\n")
        sys.stdout.flush()


def say(text: str) -> None:
    """One line on stderr."""
    print(clean(text), file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """One line on stderr that says what went wrong: red where the terminal has colours."""
    line = f"error: {clean(text)}"
    if not sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, soft_wrap=True).print(Text(line, style="red"))


def prepare_streams() -> None:
    """Let characters that the terminal's encoding lacks become "?" instead of an error half way through an answer.

    A stream that the shell closed (`>&-`) goes nowhere.
    """
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)      # absent where a test or an app replaced the stream
        if reconfigure is not None:
            reconfigure(errors="replace")


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
