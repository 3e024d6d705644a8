"""Calls of Functionary 3.2: parts of an answer begin with >>> and "all" or a tool's name; the prompt has the first >>>."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from edgellm.chat.families._format import ANY_TEXT, Format, Mark, Segment, inline, literal, named
from edgellm.chat.families._splitter import CallSplitter
from edgellm.chat.tools import Call, Tool, ToolCall

OPEN, ALL = ">>>", "all\n"


class RecipientSplitter(CallSplitter):
    """Knows that an answer begins with whom it is for. Names of tools make a call, no other ones: >>> stands in texts as well."""

    def __init__(self, format: Format, tools: Sequence[Tool]) -> None:
        self._heads = tuple(f"{tool.name}\n" for tool in tools)
        super().__init__(replace(format, openers=tuple(OPEN + head for head in self._heads)), tools)
        self._start: str | None = ""  # of the answer, until it is known for whom it is

    def segments(self, text: str) -> list[Segment]:
        if self._start is not None:
            start = self._start + text
            if any(head.startswith(start) and head != start for head in (ALL, *self._heads)):
                self._start = start
                return []
            self._start, text = None, start.removeprefix(ALL)
            if head := next((head for head in self._heads if start.startswith(head)), ""):
                self._block, self._opener, self._tried = head, head, len(head)
                text = start.removeprefix(head)
        return super().segments(text)

    def rest(self) -> list[Segment]:
        start, self._start = self._start or "", None
        return [*([start] if start else []), *super().rest()]

    def _closed(self) -> list[ToolCall] | None:
        found = super()._closed()
        if found:  # what ends a call begins the next one
            self._held = OPEN + self._held
        return found


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    match = re.match(rf"(?:{OPEN})?(?!{ALL})({named(tools)})\n", block)
    arguments = json.loads(block[match.end() :]) if match else None
    return [Call(match[1], arguments)] if match and isinstance(arguments, dict) else None


def grammar(tools: Sequence[Tool], mark: Mark, budget: int | None, must: bool = False) -> str:
    """A text and calls behind it, or calls alone."""
    names, arguments = [f"{tool.name}\n" for tool in tools], [inline(tool.parameters) for tool in tools]
    calls = " | ".join(f"{literal(name)} {each}" for name, each in zip(names, arguments, strict=True))
    spoken = " | ".join(f"head_{n} {each}" for n, each in enumerate(arguments))
    heads = [f"head_{n}[lazy]: TEXT {literal(OPEN + name)}" for n, name in enumerate(names)]
    more = f'("\\n"? {literal(OPEN)} call)*'
    text = "" if must else f"{literal(ALL)} (TEXT | ({spoken}) {more}) | "
    return "\n".join([f"start: {text}call {more}", ANY_TEXT, f"call: {calls}", *heads]) + "\n"


FORMAT = Format(
    "functionary-v3.2",
    ((OPEN + "all",),),
    (OPEN,),
    parse,
    (OPEN,),
    keeps_opener=True,
    grammar=grammar,
    splitter=RecipientSplitter,
    prefill=ALL,
)
