"""What a family's format of tool calls consists of, and the splitter that finds calls in an answer while it is written."""
from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # Any: JSON

from edgellm.chat.schemas import arguments_schema, moved
from edgellm.chat.tools import JSON_OPTIONS, Call, Tool, ToolCall

Mark = Callable[[str], str]                      # a text in a grammar: the control token that it is, or the text
Parse = Callable[[str, Sequence[Tool]], Sequence[Call | ToolCall] | None]    # ToolCall: with the id that the model wrote
Write = Callable[[Sequence[Call]], list[str]]    # calls as blocks
MAX_BROKEN = 20_000_000                          # characters read of blocks that were no calls, before an answer is text
ANY_TEXT = "TEXT: /(.|\\n)*/"


@dataclass(frozen=True, slots=True)
class Format:
    """How a family of models writes its calls.

    A block begins with an opener and ends with a closer, or with the answer where there is none. `parse` gets what stands
    between them and returns its calls, None where there are none: then it is text. `body` is the part of a grammar (Lark) between
    opener and closer, and rules of its own; `grammar` is the whole one, for formats in which text is marked as well. `write` is
    the way back from calls, for templates that leave them out.
    """

    name: str
    detects: tuple[tuple[str, ...], ...]         # texts of a template that show it: all of one of these
    openers: tuple[str, ...]
    parse: Parse
    closers: tuple[str, ...] = ()
    at_start: bool = False                       # an opener counts at the beginning of the answer alone
    keeps_opener: bool = False                   # the opener is part of what is parsed
    markers: tuple[str, ...] = ()                # control tokens that the parser must see
    body: Callable[[Sequence[Tool], Mark], str] | None = None
    grammar: Callable[[Sequence[Tool], Mark, int | None], str] | None = None         # with the budget of thinking
    answers: tuple[tuple[str, str], ...] = ()    # control tokens that the text around calls may stand between
    write: Write | None = None
    call_id: Callable[[str, int], str] | None = None     # of the n-th call of a name, where the model reads ids


class CallSplitter:
    """Tells text from calls, piece by piece. What begins like a call and is none comes out as text: nothing gets lost."""

    def __init__(self, format: Format, tools: Sequence[Tool]) -> None:
        self._format, self._tools = format, plain(tools)
        self._held = ""                          # may still become an opener
        self._block: str | None = None           # since an opener, which it begins with
        self._opener = ""
        self._tried = 0                          # where the block's next closer is looked for
        self._begun = False                      # something other than white space was said
        self._ids = set[str]()
        self._broken = 0                         # characters read of blocks that were no calls

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """The text and the calls that can be told now."""
        shown, calls = "", list[ToolCall]()
        if self._block is not None:
            self._block += text
        else:
            self._held += text
        while True:
            if self._block is None:
                shown += self._text()
            if self._block is None or not (found := self._closed()):
                return shown, calls
            calls += found

    def flush(self) -> tuple[str, list[ToolCall]]:
        """What is left at the end of the answer."""
        shown, calls = "", list[ToolCall]()
        while self._block is not None:
            body, self._block = self._block[len(self._opener) :], None
            found = self._parsed(body)
            if not found:                        # the opener was text; what follows may hold calls all the same
                shown += self._said(self._opener)
                more, found = self.push(body)
                shown += more
            calls += found
        held, self._held = self._held, ""
        return shown + held, calls

    def _text(self) -> str:
        """The text before the next opener; then the block begins."""
        if self._broken > MAX_BROKEN:
            held, self._held = self._held, ""
            return held
        held = self._held
        places = [(at, opener) for opener in self._format.openers if (at := held.find(opener)) >= 0 and self._counts(held[:at])]
        if places:
            at, self._opener = min(places, key=lambda place: (place[0], -len(place[1])))
            self._block, self._held, self._tried = held[at:], "", len(self._opener)
            return self._said(held[:at])
        keep = 0
        if not (self._format.at_start and (self._begun or held.strip())):
            beginnings = (opener[:n] for opener in self._format.openers for n in range(1, len(opener)))
            keep = max((len(text) for text in beginnings if held.endswith(text)), default=0)
        elif not self._begun:
            keep = next((len(held) for opener in self._format.openers if opener.startswith(held.lstrip())), 0)
        self._held = held[len(held) - keep :] if keep else ""
        return self._said(held[: len(held) - keep])

    def _counts(self, before: str) -> bool:
        return not self._format.at_start or not (self._begun or before.strip())

    def _said(self, text: str) -> str:
        self._begun = self._begun or bool(text.strip())
        return text

    def _closed(self) -> list[ToolCall]:
        """The calls of the block, if it is complete; what follows it is held."""
        assert self._block is not None
        while self._broken <= MAX_BROKEN:
            ends = [(found, closer) for closer in self._format.closers if (found := self._block.find(closer, self._tried)) >= 0]
            if not ends:
                longest = max(map(len, self._format.closers), default=1)
                self._tried = max(self._tried, len(self._block) - longest + 1)
                return []
            end, closer = min(ends)
            calls = self._parsed(self._block[len(self._opener) : end])
            if calls:
                self._held, self._block = self._block[end + len(closer) :], None
                return calls
            self._tried = end + 1                # the closer may stand within an argument
        return []

    def _parsed(self, body: str) -> list[ToolCall]:
        if self._broken > MAX_BROKEN:
            return []
        try:
            calls = self._format.parse(self._opener + body if self._format.keeps_opener else body, self._tools)
        except (ValueError, RecursionError):     # JSON that is none
            calls = None
        self._broken += 0 if calls else len(body)
        return [self._identified(call) for call in calls or ()]

    def _identified(self, call: Call | ToolCall) -> ToolCall:
        """With an id that no other call of the answer has."""
        if not isinstance(call, ToolCall) or call.id in self._ids:
            call = ToolCall(call.name, call.arguments, uuid.uuid4().hex[:9])
        self._ids.add(call.id)
        return call


def literal(text: str) -> str:
    """A text in the syntax of Lark."""
    return json.dumps(text, ensure_ascii=False)


def inline(schema: Any, within: Mapping[str, Any] | None = None) -> str:
    """A JSON schema in the syntax of Lark; `within`: the one that its references begin at."""
    found = dict(schema) if isinstance(schema, Mapping) else {"allOf": [schema]}
    if within is not None and '"$ref"' in json.dumps(found):
        found = _below(found) | {"$defs": {"tool": _below(within)}}
    return "%json " + json.dumps({**found, "x-guidance": JSON_OPTIONS})


def _below(schema: Any) -> Any:
    return moved(schema, lambda path: "#/$defs/tool" + path[1:] if path.startswith("#") else path)


def plain(tools: Sequence[Tool]) -> list[Tool]:
    """Tools with the schemas that grammars are made of."""
    return [tool._replace(parameters=arguments_schema(tool.parameters)) for tool in tools]


def named(tools: Sequence[Tool], others: str = r"[\w./:-]+") -> str:
    """A regular expression for the name of a tool: those that are known, or others."""
    return any_of([tool.name for tool in tools], others)


def any_of(names: Iterable[str], others: str) -> str:
    """A regular expression for one of some names, the longest first, or for others."""
    return "|".join([*map(re.escape, sorted(names, key=len, reverse=True)), others])
