"""The two streams of the command line: the answer on stdout, all else on stderr."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

from edgellm.cli.terminal.filter import Filter, clean
from edgellm.cli.terminal.screen import columns, understands_escapes

if TYPE_CHECKING:
    from edgellm.cli.terminal.markdown import Markdown
    from edgellm.cli.terminal.wrapping import WordWrap

DIM, NORMAL = "\x1b[2m", "\x1b[22m"
TOGETHER = "\xa0"  # a space at which no line is broken


class AnswerPrinter:
    """Writes a model's text to stdout as it comes: filtered, except raw text into a pipe or file; broken at words on a terminal.

    `reply`: it answers a message, so that white space before its first word means nothing, and Markdown is rendered on a terminal,
    unless `plain`.
    """

    def __init__(self, *, raw: bool = False, reply: bool = False, plain: bool = False) -> None:
        self._terminal, self._styled = sys.stdout.isatty(), understands_escapes(sys.stdout)
        self._raw, self._at_start = raw and not self._terminal, reply
        self._thinks = False
        self._renders = reply and self._styled and not plain and not os.environ.get("NO_COLOR")
        self._begin()

    def _begin(self) -> None:
        self._filter, self._at_line_start = Filter(), True
        self._wrap = _word_wrap() if self._styled else None
        self._markdown: Markdown | None = None

    def think(self, piece: str) -> None:
        """Print what the model thinks before it answers: dimmed on a terminal, nowhere else."""
        if not self._terminal:
            return
        if not self._thinks:
            self._thinks = True
            sys.stdout.write(DIM if self._styled else "[thinking]\n")
        self._put(self._filter(piece))

    def write(self, piece: str) -> None:
        """Print the next piece at once."""
        if self._thinks:
            self._end_thinking("\n" if self._styled else "[answer]\n")
        text = piece if self._raw else self._filter(piece)
        if self._at_start:
            text = text.lstrip()
        if text:
            if self._renders and self._markdown is None:
                from edgellm.cli.terminal.markdown import Markdown

                self._markdown = Markdown()
            self._at_start = False
            self._put(text)

    def end(self) -> None:
        """Finish the line, so that a prompt or the next command starts on its own; raw text stays as it is."""
        if self._markdown is not None and self._wrap is not None:
            sys.stdout.write(self._wrap(self._markdown.end()))
        if self._thinks:
            self._end_thinking("")
        elif not self._raw and not self._at_line_start:
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _put(self, text: str) -> None:
        if text:
            shown = self._markdown(text) if self._markdown is not None else text
            sys.stdout.write(self._wrap(shown) if self._wrap else text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def _end_thinking(self, separator: str) -> None:
        """Go on with the answer on a line of its own."""
        self._thinks = False
        end = "" if self._at_line_start else "\n"
        sys.stdout.write((NORMAL if self._styled else "") + end + separator)
        self._begin()


def _word_wrap() -> WordWrap:
    from edgellm.cli.terminal.wrapping import WordWrap

    return WordWrap(lambda: columns(sys.stdout))


def say(text: str) -> None:
    """One line on stderr; on a terminal it is broken at words."""
    print(fitting(clean(text)), file=sys.stderr, flush=True)


def fitting(text: str, indent: int = 0) -> str:
    """A line for stderr, broken at words where that is a terminal; all lines but the first are indented.

    Short parts between dots (` · `) stay together.
    """
    if not sys.stderr.isatty():
        return text
    width = max(columns(sys.stderr) - 1, 2 * indent)
    first, *parts = text.split(" · ")
    text = " · ".join((first, *(part.replace(" ", TOGETHER) if len(part) <= width // 2 else part for part in parts)))
    filled = textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace(TOGETHER, " ")


def complain(text: str) -> None:
    """One line on stderr that says what went wrong: red where the terminal has colours."""
    line = f"error: {clean(text)}"
    if not sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, soft_wrap=True).print(Text(fitting(line), style="red"))


def prepare_streams() -> None:
    """Let characters that the terminal's encoding lacks become "?" instead of an error half way through an answer.

    Streams that the shell closed (`>&-`, `<&-`) go nowhere, and nothing comes from there.
    """
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # absent where a test or an app replaced the stream
        if reconfigure is not None:
            reconfigure(errors="replace")


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
