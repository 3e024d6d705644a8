"""Markdown as a terminal shows it, styled while it streams: what is on the screen is never drawn again, so nothing flickers."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from edgellm.cli.terminal.emphasis import BOLD, PLAIN_WEIGHT, Emphasis

DIM = "\x1b[2m"
_FENCE = re.compile(r"(\s*)(```+|~~~+)\s*([\w+#.-]*)")
_BULLET = re.compile(r"(\s*)[-*+] ")
_HEADING = re.compile(r"#{1,6} ")
_SGR = re.compile(r"\x1b\[[\d;]*m|.", re.DOTALL)
_STARTS = re.compile(r"\s*(?:#{1,6}|[-*+]|`{1,3}|~{1,3})?")  # beginnings of lines that may still become something


class Markdown:
    """Turns pieces of text into characters and style changes, each a string of its own. Complete lines of code are coloured."""

    def __init__(self) -> None:
        self._line = ""  # its beginning, while that decides what the line is
        self._inline: Emphasis | None = None  # once the line's kind is known
        self._fence, self._language = "", ""  # of the code block that is open

    def __call__(self, text: str) -> Iterator[str]:
        """The text to show for the next piece."""
        for char in text:
            yield from self._next(char)

    def end(self) -> Iterator[str]:
        """The text that was held back, with all styles closed."""
        if self._fence:
            yield from self._code_line(self._line)
        else:
            yield from self._rest()
        self._line, self._inline = "", None

    def _next(self, char: str) -> Iterator[str]:
        if self._fence:
            yield from self._in_fence(char)
        elif char == "\n":
            yield from self._end_of_line()
        elif self._inline is not None:
            yield from self._inline(char)
        else:
            self._line += char
            if not _STARTS.fullmatch(self._line):
                yield from self._begin()

    def _begin(self) -> Iterator[str]:
        """The kind of line, by its first characters."""
        line, self._line = self._line, ""
        if _FENCE.match(line):
            self._line = line  # to its end: the language follows
            return
        heading = bool(_HEADING.match(line))
        self._inline = Emphasis(bold=heading)
        if heading:
            yield BOLD
            line = line.lstrip("#").lstrip()
        elif (bullet := _BULLET.match(line)) is not None:
            yield from bullet[1] + "• "
            line = line[bullet.end() :]
        for char in line:
            yield from self._inline(char)

    def _end_of_line(self) -> Iterator[str]:
        fence = None if self._inline is not None else _FENCE.match(self._line)
        if fence is not None:
            self._fence, self._language = fence[2], fence[3]
            yield from (DIM, *self._line, PLAIN_WEIGHT)
        else:
            yield from self._rest()
        self._line, self._inline = "", None
        yield "\n"

    def _rest(self) -> Iterator[str]:
        """The part of a line that was held back."""
        yield from self._line if self._inline is None else self._inline.end()

    def _in_fence(self, char: str) -> Iterator[str]:
        if char != "\n":
            self._line += char
            return
        line, self._line = self._line, ""
        if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fence = ""
            yield from (DIM, *line, PLAIN_WEIGHT)
        else:
            yield from self._code_line(line)
        yield "\n"

    def _code_line(self, line: str) -> Iterator[str]:
        yield from (match[0] for match in _SGR.finditer(coloured(line, self._language)))


def coloured(line: str, language: str) -> str:
    """A line of code with rich's colours, as it is where the language is not known."""
    if not language or not line.strip():
        return line
    from rich.console import Console
    from rich.syntax import Syntax

    text = Syntax("", language, theme="ansi_dark").highlight(line)
    text.rstrip()
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system="standard", width=10_000).print(text, end="", soft_wrap=True)
    shown = out.getvalue()
    indent = line[: len(line) - len(line.lstrip())]
    return shown if re.sub(r"\x1b\[[\d;]*m", "", shown) == line.rstrip() else (indent + line.lstrip())
