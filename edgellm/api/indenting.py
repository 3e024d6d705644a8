"""Compact JSON indented while it is written."""

from __future__ import annotations


class Indenter:
    """Puts line ends and blanks between the parts of compact JSON, as json.dumps(indent=...) does."""

    found = None  # as a StopText has it: no text ends the answer

    def __init__(self, blanks: int) -> None:
        self._blanks, self._depth = blanks, 0
        self._in_text = self._escaped = False
        self._opened = ""  # a bracket that may be closed at once

    def push(self, text: str) -> tuple[str, bool]:
        """The same text, indented; and that it does not end the answer."""
        return "".join(map(self._next, text)), False

    def flush(self) -> str:
        """A bracket that was held back."""
        opened, self._opened = self._opened, ""
        return opened

    def _next(self, sign: str) -> str:
        if self._in_text:
            self._escaped, ends = sign == "\\" and not self._escaped, sign == '"' and not self._escaped
            self._in_text = not ends
            return sign
        opened, self._opened = self._opened, ""
        if sign in "]}":
            if opened:
                return opened + sign
            self._depth -= 1
            return self._line() + sign
        if opened:
            self._depth += 1
            opened += self._line()
        if sign in "[{":
            self._opened = sign
            return opened
        self._in_text = sign == '"'
        return opened + (sign + self._line() if sign == "," else ": " if sign == ":" else sign)

    def _line(self) -> str:
        return "\n" + " " * (self._blanks * self._depth)
