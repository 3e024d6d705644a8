"""A filter for text that others wrote (models, files): nothing in it may steer the terminal it is printed on."""

from __future__ import annotations

import re

# C0 but \n and \t, DEL, C1, bidirectional marks, overrides and isolates, separators of lines and paragraphs, lone surrogates
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BYTES = re.compile(r"(?:\\udc[89a-f][0-9a-f])+|[\udc80-\udcff]+")  # as repr() writes them, or as they are
_STRING_STARTS = {"]", "P", "X", "^", "_", "\x9d", "\x90", "\x98", "\x9e", "\x9f"}  # OSC DCS SOS PM APC, 7 and 8 bit
_LONGEST_SEQUENCE = 64  # a real CSI is far shorter
_LONGEST_STRING = 1024  # an unfinished string must not swallow the rest of an answer


class Filter:
    """Takes control characters and whole escape sequences out of a stream, also when they are split over pieces."""

    def __init__(self) -> None:
        self._inside = ""  # "": text; "escape", "sequence" (CSI), "string" (OSC and its kin), "string escape"
        self._length = 0

    def __call__(self, piece: str) -> str:
        """The part of the next piece that may be printed."""
        if not self._inside and not _FORBIDDEN.search(piece):
            return piece
        return "".join(filter(None, map(self._next, piece)))

    def _next(self, char: str) -> str:
        """One character through the automaton: what of it may be printed."""
        if char == "\x1b":
            self._enter("string escape" if self._inside.startswith("string") else "escape")
        elif char == "\x9b":
            self._enter("sequence")
        elif char in "\x9d\x90\x98\x9e\x9f":
            self._enter("string")
        elif self._inside:
            return self._within(char)
        elif "\ud800" <= char <= "\udfff":
            return "\N{REPLACEMENT CHARACTER}"
        elif not _FORBIDDEN.match(char):
            return char
        return ""

    def _enter(self, state: str) -> None:
        self._inside, self._length = state, 0

    def _leave(self, char: str) -> str:
        """The sequence broke off: `char` is text again."""
        self._inside = ""
        return self._next(char)

    def _within(self, char: str) -> str:
        self._length += 1
        if self._inside == "string escape" and char == "\\":
            self._inside = ""
        elif self._inside in ("escape", "string escape"):
            return self._after_escape(char)
        elif self._inside == "sequence":
            if not " " <= char <= "~" or self._length > _LONGEST_SEQUENCE:
                return self._leave(char)
            if char >= "@":
                self._inside = ""
        elif char in "\a\x9c\x18\x1a":
            self._inside = ""
        elif char == "\n" or self._length > _LONGEST_STRING:
            return self._leave(char)
        return ""

    def _after_escape(self, char: str) -> str:
        if char == "[":
            self._enter("sequence")
        elif char in _STRING_STARTS:
            self._enter("string")
        elif not " " <= char <= "~" or self._length > _LONGEST_SEQUENCE:
            return self._leave(char)
        elif char >= "0":
            self._inside = ""
        return ""


def clean(text: str) -> str:
    """A name or message as one printable line. Bytes of a file's name that the locale could not read are shown as UTF-8."""
    return " ".join(Filter()(_BYTES.sub(_read, text)).split())


def _read(found: re.Match[str]) -> str:
    codes = re.findall(r"\\udc(..)", found[0]) or [f"{ord(char) - 0xDC00:x}" for char in found[0]]
    return bytes.fromhex("".join(codes)).decode("utf-8", "replace")
