"""Calls of Functionary 3.2: parts of an answer begin with >>> and "all" or a tool's name; the prompt has the first >>>."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.families._format import Format, Mark, Segment, arguments, literal, named
from edgellm.chat.families._partial import Partial, arguments_of
from edgellm.chat.families._splitter import CallSplitter
from edgellm.chat.tools import Call, Tool, ToolCall

OPEN, ALL = ">>>", "all\n"


class RecipientSplitter(CallSplitter):
    """Knows that an answer begins with whom it is for. Names of tools make a call, no other ones: >>> stands in texts as well."""

    _start: str | None = ""  # of the answer, until it is known whether it is for all

    def segments(self, text: str) -> list[Segment]:
        if self._start is not None:
            start = self._start + text
            if ALL.startswith(start) and start != ALL:
                self._start = start
                return []
            self._start, text = None, start.removeprefix(ALL)
            self._begun = start.startswith(ALL)
        return super().segments(text)

    def rest(self) -> list[Segment]:
        start, self._start = self._start or "", None
        return [*([start] if start else []), *super().rest()]

    def _closed(self) -> list[ToolCall] | None:
        found = super()._closed()
        if found:  # what ends a call begins the next one
            self._held = OPEN + self._held
        return found


def _head(block: str, tools: Sequence[Tool]) -> re.Match[str] | None:
    return re.match(rf"(?:{OPEN})?(?!{ALL})({named(tools)})\n", block)


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    match = _head(block, tools)
    arguments = json.loads(block[match.end() :]) if match else None
    return [Call(match[1], arguments)] if match and isinstance(arguments, dict) else None


def partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    match = _head(block, tools)
    return arguments_of(match[1], block, match.end()) if match else None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    calls = [f"{literal(tool.name + chr(10))} {arguments(tool)}" for tool in tools]
    return f"({literal(OPEN)})? ({' | '.join(calls)})"


FORMAT = Format(
    "functionary-v3.2",
    ((OPEN + "all",),),
    (OPEN + "{}\n",),
    parse,
    (OPEN,),
    keeps_opener=True,
    whole_body=True,
    starts="{}\n",
    body=body,
    splitter=RecipientSplitter,
    prefill=(OPEN, ALL),
    partial=partial,
    ends=("}",),
)
