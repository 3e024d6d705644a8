"""What a family's format of tool calls consists of, and the splitter that finds calls in an answer while it is written."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # Any: JSON

from edgellm.chat.families._reading import Cut
from edgellm.chat.schemas import arguments_schema, moved
from edgellm.chat.tools import JSON_OPTIONS, Call, Tool, ToolCall, is_finite

Mark = Callable[[str], str]  # a text in a grammar: the control token that it is, or the text
Parse = Callable[[str, Sequence[Tool]], Sequence[Call | ToolCall] | None]  # ToolCall: with the id that the model wrote
Write = Callable[[Sequence[Call]], list[str]]  # calls as blocks
MAX_BROKEN = 20_000_000  # what blocks that were no calls may cost, before an answer is text
ANY_TEXT = "TEXT: /(.|\\n)*/"


def counted(signs: str, each: int) -> Callable[[str], int]:
    """What a try to parse a block costs, in characters that the JSON module reads: each of some signs as many as `each`."""
    return lambda body: len(body) + each * sum(map(body.count, signs))


JSON_COST = counted("{", 20)


@dataclass(frozen=True, slots=True)
class Format:
    """How a family of models writes its calls.

    A block begins with an opener and ends with a closer, or with the answer where there is none. `parse` gets what stands
    between them and returns its calls. It returns None where there are none and none can be, whatever follows: then it is text. It
    raises ValueError where there are none as yet, and Cut where the block ends within a call. `body` is the part of a grammar
    (Lark) between opener and closer, and rules of its own; `grammar` is the whole one, for formats in which text is marked as well.
    `write` is the way back from calls, for templates that leave them out.
    """

    name: str
    detects: tuple[tuple[str, ...], ...]  # texts of a template that show it: all of one of these
    openers: tuple[str, ...]
    parse: Parse
    closers: tuple[str, ...] = ()
    at_start: bool = False  # an opener counts at the beginning of the answer alone
    keeps_opener: bool = False  # the opener is part of what is parsed
    markers: tuple[str, ...] = ()  # control tokens that the parser must see
    body: Callable[[Sequence[Tool], Mark], str] | None = None
    grammar: Callable[[Sequence[Tool], Mark, int | None], str] | None = None  # with the budget of thinking
    answers: tuple[tuple[str, str], ...] = ()  # control tokens that the text around calls may stand between
    write: Write | None = None
    call_id: Callable[[str, int], str] | None = None  # of the n-th call of a name, where the model reads ids
    cost: Callable[[str], int] = JSON_COST  # of parsing a block in vain
    splitter: Callable[[Format, Sequence[Tool]], CallSplitter] | None = None  # where CallSplitter does not do
    prefill: str = ""  # what goes behind a prompt that ends with an opener, where there are no tools


class CallSplitter:
    """Tells text from calls, piece by piece. What begins like a call and is none comes out as text: nothing gets lost."""

    def __init__(self, format: Format, tools: Sequence[Tool]) -> None:
        self._format, self._tools = format, plain(tools)
        self._held = ""  # may still become an opener
        self._block: str | None = None  # since an opener, which it begins with
        self._opener = ""
        self._tried = 0  # where the block's next closer is looked for
        self._needs = ""  # what comes before that closer
        self._begun = False  # something other than white space was said
        self._ids = set[str]()
        self._broken = 0  # what it cost to parse blocks that were no calls

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
            if self._block is None or (found := self._closed()) is None:
                return shown, calls
            if not found:  # the opener was text; what follows may hold calls all the same
                self._held, self._block = self._block[len(self._opener) :], None
                shown += self._said(self._opener)
            calls += found

    def flush(self) -> tuple[str, list[ToolCall]]:
        """What is left at the end of the answer; of a block that is cut, the calls before the one that is."""
        shown, calls = "", list[ToolCall]()
        while self._block is not None:
            rest, self._block = self._block[len(self._opener) :], None
            found = self._parsed(rest)
            if isinstance(found, Cut):
                found, rest = self._whole(found, rest)
            elif found:
                rest = ""
            if not found:
                shown += self._said(self._opener)
            more, others = self.push(rest)
            shown += more
            calls += [*found, *others]
        held, self._held = self._held, ""
        return shown + held, calls

    def _whole(self, cut: Cut, body: str) -> tuple[list[ToolCall], str]:
        """The calls of a block that are complete, and the rest of it, but for a closer that is cut."""
        try:
            found = self._identified([*cut.calls])
        except (ValueError, RecursionError):
            found = []
        if found:
            body = body[cut.at - len(self._opener) * self._format.keeps_opener :]
        closes = found and any(closer.startswith(body) for closer in self._format.closers)
        return found, "" if closes else body

    def _text(self) -> str:
        """The text before the next opener; then the block begins."""
        if self._broken > MAX_BROKEN:
            held, self._held = self._held, ""
            return held
        held = self._held
        places = [(at, opener) for opener in self._format.openers if (at := held.find(opener)) >= 0 and self._counts(held[:at])]
        if places:
            at, self._opener = min(places, key=lambda place: (place[0], -len(place[1])))
            self._block, self._held, self._tried, self._needs = held[at:], "", len(self._opener), ""
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

    def _closed(self) -> list[ToolCall] | None:
        """The calls of the block, if it is complete; what follows it is held. None as long as it is not, [] if it is text."""
        assert self._block is not None
        while self._broken <= MAX_BROKEN:
            marks = (self._needs,) if self._needs else self._format.closers
            ends = [(at, mark) for mark in marks if (at := self._block.find(mark, self._tried)) >= 0]
            if not ends:
                self._tried = max(self._tried, len(self._block) - max(map(len, marks), default=1) + 1)
                return None
            end, mark = min(ends)
            if self._needs:
                self._tried, self._needs = end + len(mark), ""
                continue
            found = self._parsed(self._block[len(self._opener) : end])
            if not isinstance(found, Cut):
                if found:
                    self._held, self._block = self._block[end + len(mark) :], None
                return found
            # The closer may stand within an argument.
            self._tried, self._needs = (end, found.needs) if found.needs else (end + 1, "")
        return []

    def _parsed(self, body: str) -> list[ToolCall] | Cut:
        """The calls of a block, [] if it is text whatever follows."""
        if self._broken > MAX_BROKEN:
            return []
        found: list[ToolCall] | Cut = []
        try:
            calls = self._format.parse(self._opener + body if self._format.keeps_opener else body, self._tools)
            if found := self._identified(calls or ()):
                return found
        except Cut as cut:
            found = cut
        except (ValueError, RecursionError):  # JSON that is none
            found = Cut()
        self._broken += self._format.cost(body)
        return found

    def _identified(self, calls: Sequence[Call | ToolCall]) -> list[ToolCall]:
        """With ids that no other call of the answer has; none where one has a number that JSON cannot have."""
        if not all(is_finite(call.arguments) for call in calls):
            return []
        found = list[ToolCall]()
        for call in calls:
            if not isinstance(call, ToolCall) or call.id in self._ids:
                call = ToolCall(call.name, call.arguments, uuid.uuid4().hex[:9])
            self._ids.add(call.id)
            found.append(call)
        return found


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


def with_form(rules: str, form: str) -> str:
    """A grammar of llguidance: rules (Lark) that call another grammar @form."""
    found = json.loads(form)["grammars"][0] if form.startswith("{") else {"lark_grammar": form}
    return json.dumps({"grammars": [{"lark_grammar": rules}, {**found, "name": "form"}]})


def plain(tools: Sequence[Tool]) -> list[Tool]:
    """Tools with the schemas that grammars are made of."""
    return [tool._replace(parameters=arguments_schema(tool.parameters)) for tool in tools]


def named(tools: Sequence[Tool], others: str = r"[\w./:-]+") -> str:
    """A regular expression for the name of a tool: those that are known, or others."""
    return any_of([tool.name for tool in tools], others)


def any_of(names: Iterable[str], others: str) -> str:
    """A regular expression for one of some names, the longest first, or for others."""
    return "|".join([*map(re.escape, sorted(names, key=len, reverse=True)), others])
