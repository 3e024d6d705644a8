"""Markdown as a terminal shows it, styled while it streams: what is on the screen is never drawn again, so nothing flickers."""
from __future__ import annotations

import io
import re
from collections.abc import Iterator

BOLD, DIM, PLAIN_WEIGHT = "\x1b[1m", "\x1b[2m", "\x1b[22m"
ITALIC, UPRIGHT, CODE, PLAIN_COLOUR = "\x1b[3m", "\x1b[23m", "\x1b[36m", "\x1b[39m"
_FENCE = re.compile(r"(\s*)(```+|~~~+)\s*([\w+#.-]*)")
_BULLET = re.compile(r"(\s*)[-*+] ")
_HEADING = re.compile(r"#{1,6} ")
_SGR = re.compile(r"\x1b\[[\d;]*m|.", re.DOTALL)
_STARTS = re.compile(r"\s*(?:#{1,6}|[-*+]|`{1,3}|~{1,3})?")  # beginnings of lines that may still become something


class Markdown:
    """Turns pieces of text into characters and style changes, each a string of its own. Lines of code are coloured when whole."""

    def __init__(self) -> None:
        self._line = ""                          # its beginning, while that decides what the line is
        self._held = ""                          # a mark that may be longer
        self._begun = False                      # the line's kind is known
        self._fence, self._language = "", ""     # of the code block that is open
        self._bold = self._italic = self._code = self._heading = False
        self._before = " "                       # the character before

    def __call__(self, text: str) -> Iterator[str]:
        """What to show for the next piece."""
        for char in text:
            yield from self._next(char)

    def end(self) -> Iterator[str]:
        """What was held back, and all styles closed."""
        if self._fence:
            yield from self._code_line(self._line)
        elif not self._begun:
            yield from self._line
        yield from self._marks("")
        yield from self._close()
        self._line, self._begun = "", False

    def _next(self, char: str) -> Iterator[str]:
        if self._fence:
            yield from self._in_fence(char)
        elif char == "\n":
            yield from self._end_of_line()
        elif self._begun:
            yield from self._inline(char)
        else:
            self._line += char
            if not _STARTS.fullmatch(self._line):
                yield from self._begin()

    def _begin(self) -> Iterator[str]:
        """The line's first characters tell what it is."""
        line, self._line = self._line, ""
        if _FENCE.match(line):
            self._line = line                    # to its end: the language follows
            return
        self._begun = True
        if _HEADING.match(line):
            self._heading = True
            yield BOLD
            line = line.lstrip("#").lstrip()
        elif (bullet := _BULLET.match(line)) is not None:
            yield from bullet[1] + "• "
            line = line[bullet.end() :]
        for char in line:
            yield from self._inline(char)

    def _end_of_line(self) -> Iterator[str]:
        fence = None if self._begun else _FENCE.match(self._line)
        if fence is not None:
            self._fence, self._language = fence[2], fence[3]
            yield from (DIM, *self._line, PLAIN_WEIGHT)
        elif not self._begun:
            yield from self._line
        yield from self._marks("\n")
        yield from self._close()
        self._line, self._begun, self._before = "", False, " "
        yield "\n"

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

    def _inline(self, char: str) -> Iterator[str]:
        if char == "`" or (char in "*_" and not self._code):
            if self._held and self._held[0] != char:
                yield from self._marks(char)
            self._held += char
            return
        yield from self._marks(char)
        self._before = char
        yield char

    def _marks(self, after: str) -> Iterator[str]:
        """What the marks that were held mean, now that it is known what follows."""
        held, self._held = self._held, ""
        if not held:
            return
        opens, closes = bool(after.strip()), bool(self._before.strip())
        if held == "`":
            self._code = not self._code
            yield CODE if self._code else PLAIN_COLOUR
        elif held in ("**", "__") and (closes if self._bold else opens):
            self._bold = not self._bold
            yield BOLD if self._bold else (PLAIN_WEIGHT if not self._heading else "")
        elif held == "*" and (closes if self._italic else opens and not self._before.isalnum()):
            self._italic = not self._italic
            yield ITALIC if self._italic else UPRIGHT
        else:
            yield from held
        self._before = held[-1] if held not in ("`", "**", "__", "*") else self._before

    def _close(self) -> Iterator[str]:
        if self._bold or self._heading:
            yield PLAIN_WEIGHT
        if self._italic:
            yield UPRIGHT
        if self._code:
            yield PLAIN_COLOUR
        self._bold = self._italic = self._code = self._heading = False


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
