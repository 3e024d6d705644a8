"""Breaks an answer at words while it is being written on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rich.cells import cell_len

NARROWEST = 20  # columns; below, the terminal does what it likes
# What the lines that follow are indented by: white space, and the mark of a list or quotation.
_INDENT = re.compile(r"\s*(?:(?:[-*+•–>]|\d{1,3}[.)])\s+)?")
_VERBATIM = ("```", "~~~", "|")  # fences of code, rows of tables: such lines are left as they are
_FENCES = ("```", "~~~")
_NOT_FIRST = frozenset("、。，．・：；！？）」』】》〉〕］｝…ー々")  # never begin a line
_NOT_LAST = frozenset("（「『【《〈〔［｛")


class WordWrap:
    """Turns pieces of text into what a terminal shall be sent; the first piece begins at the left edge.

    Words appear as they come: one that gets too long for its line is erased there and moved to the next. Lines of lists stay
    indented. Code between fences, tables, and words longer than a line are left to the terminal.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._in_code = False
        self._begin_line()

    def __call__(self, text: Iterable[str]) -> str:
        """The text to send for the next piece: a string, or characters with style changes (escape sequences) among them."""
        columns = self._columns()
        if columns < NARROWEST:
            return "".join(text)
        return "".join(self._next(char, columns) for char in text)

    def _begin_line(self) -> None:
        self._line = ""  # its beginning, as the model wrote it
        self._column = 0  # where the cursor is
        self._word, self._word_width = "", 0  # the part of the last word that is on the screen
        self._spaces = ""  # not sent yet: at the end of a line they go

    def _next(self, char: str, columns: int) -> str:
        if not char or char[0] == "\x1b":
            return self._style(char)
        if char == "\n":
            self._in_code ^= self._line.lstrip().startswith(_FENCES)
            self._begin_line()
            return char
        if len(self._line) < columns:
            self._line += char
        if self._in_code or self._line.lstrip().startswith(_VERBATIM):
            spaces, self._spaces = self._spaces, ""
            return spaces + char
        if char in " \t":
            self._spaces += " " if char == " " else "    "
            self._word, self._word_width = "", 0
            return ""
        return self._visible(char, columns)

    def _style(self, sequence: str) -> str:
        """A change of style has no width; within a word it goes where the word goes."""
        spaces, self._spaces = self._spaces, ""
        self._column += len(spaces)
        self._word += sequence
        return spaces + sequence

    def _visible(self, char: str, columns: int) -> str:
        """A character of a word."""
        width, limit = cell_len(char), columns - 1  # the last column stays free: terminals differ in what comes after it
        before = self._word[-1:]
        if (width > 1 or cell_len(before) > 1) and char not in _NOT_FIRST and before not in _NOT_LAST:
            self._word, self._word_width = "", 0  # such scripts break between any two characters
        spaces, self._spaces = self._spaces, ""
        indent = min(cell_len(_INDENT.match(self._line)[0]), columns // 2)  # type: ignore[index]  # it matches ""
        start = self._column - self._word_width + len(spaces)
        sent = spaces
        if self._column + len(spaces) + width <= limit:
            self._column += len(spaces) + width
        elif start > indent and indent + self._word_width + width <= limit:
            wipe = f"\x1b[{self._word_width}D\x1b[K" if self._word_width else ""
            sent = f"{wipe}\n{' ' * indent}{self._word}"
            self._column = indent + self._word_width + width
        else:  # longer than a line: the terminal continues in its first column
            self._column += len(spaces) + width
            self._column = width if self._column > columns else self._column
        self._word, self._word_width = self._word + char, self._word_width + width
        return sent + char
