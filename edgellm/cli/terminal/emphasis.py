"""Bold, italics and code within a line of Markdown; a mark whose partner never comes is shown as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BOLD, PLAIN_WEIGHT, ITALIC, UPRIGHT, CODE, PLAIN_COLOUR = "\x1b[1m", "\x1b[22m", "\x1b[3m", "\x1b[23m", "\x1b[36m", "\x1b[39m"
LONGEST_WAIT = 40  # characters; emphasis that has not ended by then is shown as such
_STYLES = {"**": (BOLD, PLAIN_WEIGHT), "__": (BOLD, PLAIN_WEIGHT), "*": (ITALIC, UPRIGHT), "`": (CODE, PLAIN_COLOUR)}
_ARGUMENT = re.compile(r"[^\W\d]\w*\)")  # `**kwargs)`: text that is no emphasis
_AFTER_OPERAND = frozenset(")]}")  # `(a + b)**2`: an operator


@dataclass(slots=True)
class _Opened:
    """A mark that has begun something. `place`: among the pieces that wait; -1 once they are on the screen, styled."""

    mark: str
    place: int


class Emphasis:
    """Turns the characters of one line into characters and style changes. Behind a mark it waits for the partner."""

    def __init__(self, *, bold: bool = False) -> None:
        """`bold`: the whole line is, as a heading."""
        self._all_bold = bold
        self._held = ""  # a mark that may be longer
        self._before = " "  # the character before
        self._open: list[_Opened] = []
        self._waiting: list[str] = []

    def __call__(self, char: str) -> Iterator[str]:
        """The text to show for the next character."""
        if self._held and self._held[0] != char:
            self._marks(char)
        if char == "`" or (char in "*_" and not (self._open and self._open[-1].mark == "`")):
            self._held += char
            return
        self._before = char
        self._waiting.append(char)
        if self._unsure and len(self._waiting) > LONGEST_WAIT:
            self._wait_no_longer()
        if not self._unsure:
            yield from self._released()

    def end(self) -> Iterator[str]:
        """The text that waits at the line's end, with all styles closed."""
        self._marks("\n")
        yield from self._released()
        yield from (_STYLES[opened.mark][1] for opened in self._open if opened.place < 0)
        if self._all_bold:
            yield PLAIN_WEIGHT

    @property
    def _unsure(self) -> bool:
        return bool(self._open) and self._open[-1].place >= 0

    def _released(self) -> Iterator[str]:
        waiting, self._waiting = self._waiting, []
        for piece in waiting:
            yield from [piece] if piece.startswith("\x1b") else piece

    def _marks(self, after: str) -> None:
        """The held marks as styles or text, now that the next character is known."""
        held, self._held = self._held, ""
        if not held:
            return
        if held in _STYLES:
            if any(opened.mark == held for opened in self._open) and self._closes(held, after):
                self._close(held)
                return
            if self._opens(held, after):
                self._open.append(_Opened(held, len(self._waiting)))
                self._waiting.append(held)
                return
        self._waiting.append(held)
        self._before = held[-1]

    def _opens(self, mark: str, after: str) -> bool:
        before = self._before
        if mark == "`":
            return True
        if before.isalnum() and (mark != "**" or before.isascii()):
            return False
        argument = mark != "__" and before in "(," and (after.isalpha() or after == "_")  # f(**kwargs)
        return bool(after.strip()) and before not in _AFTER_OPERAND and not argument and not (mark == "__" and before == "_")

    def _closes(self, mark: str, after: str) -> bool:
        if mark == "`":
            return True
        ascii_after = after.isascii() and after.isalnum()
        if mark == "__" and ascii_after:
            return False
        return bool(self._before.strip()) and (self._before.isalnum() or not self._before.isascii() or not ascii_after)

    def _close(self, mark: str) -> None:
        """End the last emphasis with this mark; those within it that did not end were none."""
        k = max(k for k, opened in enumerate(self._open) if opened.mark == mark)
        ended, inside = self._open[k], self._open[k + 1 :]
        del self._open[k:]
        if mark == "__" and ended.place >= 0 and _is_name("".join(self._waiting[ended.place + 1 :])):
            self._waiting.append(mark)  # __init__
            return
        self._waiting += [_STYLES[opened.mark][1] for opened in inside if opened.place < 0]
        if ended.place >= 0:
            self._waiting[ended.place] = _STYLES[mark][0]
        if not (self._all_bold and mark in ("**", "__")):
            self._waiting.append(_STYLES[mark][1])

    def _wait_no_longer(self) -> None:
        """Show what waits as emphasis, unless it looks like arguments in program text."""
        kept = []
        for opened in self._open:
            if opened.place >= 0:
                if opened.mark != "`" and _ARGUMENT.match("".join(self._waiting[opened.place + 1 :])):
                    continue
                self._waiting[opened.place], opened.place = _STYLES[opened.mark][0], -1
            kept.append(opened)
        self._open = kept


def _is_name(text: str) -> bool:
    """True if Python might have it between double underscores."""
    return text.isascii() and text.isidentifier() and text.islower()
