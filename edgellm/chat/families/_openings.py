"""Where a call begins in an answer: in its family's format, or in one that strays from it and can be read all the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from edgellm.chat.families import _strays
from edgellm.chat.families._format import Format
from edgellm.chat.tools import Tool

LINE = re.compile(r"(?:\A|(?<=\n))[ \t]*(?=[`{[\w])")  # the beginning of one that may hold a call
CODE = re.compile(r"^[ \t]*```", re.MULTILINE)  # begins or ends code
SPACE = re.compile(r"\s+")


class Opening(NamedTuple):
    """Where a block begins in a text, and in which format; `opener` is empty for one that is recognised by its form."""

    at: int
    opener: str
    format: Format


def ways(format: Format, tools: Sequence[Tool]) -> tuple[Format, ...]:
    """The formats in which a model of a family writes calls: its own, a call without the marks around it, those of others."""

    def named(begin: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(begin.replace("{}", tool.name) for tool in tools))

    found = [_strays.with_others(replace(format, openers=tuple(each for opener in format.openers for each in named(opener))))]
    if format.at_start and (marks := tuple(opener for opener in format.openers if opener.startswith("<|"))):
        found.append(replace(format, name=f"{format.name}-mark", openers=marks, at_start=False, detects=()))
    if format.starts:
        found.append(replace(format, name=f"{format.name}-start", openers=named(format.starts), at_start=True))
    functions = _strays.functions(format)
    if format.bare is not None:
        opener, closer = format.bare
        is_function = opener == functions.openers[0]
        found.append(
            replace(
                format,
                name=f"{format.name}-bare",
                openers=named(opener),
                closers=(closer,),
                keeps_opener=True,
                keeps_closer=True,
                whole_body=True,
                follows=format.closers,
                first="",
                bare=None,
                others=(replace(functions, first="{"),) if is_function else (),
            )
        )
    if not any(opener.startswith("<function=") for opener in (*format.openers, *(format.bare or ()))):
        found.append(replace(functions, openers=named(functions.openers[0])))
    return (*found, _strays.tagged(format), _strays.json_lines(tools))


class Openings:
    """Finds them in a text that grows at its end. `spell`: how the text spells what formats say (bytes read as latin-1)."""

    def __init__(self, formats: Sequence[Format], spell: Callable[[str], str] = str) -> None:
        self._literals = [(spell(opener), format) for format in formats for opener in format.openers]
        self._forms = [(spell(form), format) for format in formats for form in format.forms]
        self._longest = max((len(form) for form, _ in self._forms), default=0)
        self.longest = max(self._longest, *(len(opener) for opener, _ in self._literals)) if self._literals else self._longest

    def find(
        self, text: str, *, begun: bool, mid_line: bool, thinking: bool = False, code: bool = False, line: str = ""
    ) -> Opening | None:
        """The first one. `begun`: something was said before; `mid_line`: also on this line, which begins with `line`; `code`: in a
        fence of code. Within thinking openers count alone."""
        places = [
            Opening(at, opener, format)
            for opener, format in self._literals
            if (at := text.find(opener)) >= 0 and not (format.at_start and (thinking or begun or text[:at].strip()))
        ]
        first = min(places, key=lambda place: (place.at, -len(place.opener)), default=None)
        if thinking:
            return first
        # A list at the beginning may be in Python's syntax in a family of JSON's, and in JSON in one of Python's.
        is_list, end = first is not None and first.opener == "[" and first.format.at_start, len(text) if first is None else first.at
        unclear = False
        for at, format, is_complete in self._on_lines(text, mid_line, end + is_list, code, line):
            if first is None or at < first.at or format.in_code == first.format.shows.endswith("("):
                if is_complete:
                    return Opening(at, "", format)
                unclear |= at == end
        return None if unclear else first

    def kept(self, text: str, *, begun: bool, mid_line: bool, thinking: bool = False, code: bool = False, line: str = "") -> int:
        """How much of the end of a text without an opening may begin one."""
        keep = 0
        for opener, format in self._literals:
            if format.at_start:
                if not (thinking or begun) and opener.startswith(text.lstrip()):
                    keep = len(text)
            else:
                keep = max(keep, next((n for n in range(min(len(opener) - 1, len(text)), 0, -1) if text.endswith(opener[:n])), 0))
        if not thinking:
            lines = self._on_lines(text, mid_line, len(text), code, line)
            keep = max([keep, *(len(text) - at for at, _, is_complete in lines if not is_complete)])
        return keep

    def _on_lines(self, text: str, mid_line: bool, end: int, code: bool, before: str) -> list[tuple[int, Format, bool]]:
        """Where lines before `end` begin with the form of a call, or (False) with a part of it."""
        found = list[tuple[int, Format, bool]]()
        for line in LINE.finditer(text, 0, end) if self._forms else ():
            if line.start() == 0 and mid_line:
                continue
            begun = SPACE.sub("", text[line.end() : line.end() + 4 * self._longest])
            within = code ^ len(CODE.findall(before + text[: line.start()])) % 2
            for form, format in self._forms:
                if within and not format.in_code:
                    continue
                if begun.startswith(form):
                    found.append((line.end(), format, True))
                elif form.startswith(begun) and len(begun) < len(form) and text[line.end() :].strip():
                    found.append((line.end(), format, False))
        return found
