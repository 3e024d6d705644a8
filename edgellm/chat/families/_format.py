"""A family's format of tool calls as data, and the parts of grammars (Lark) that formats share."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol  # Any: JSON

from edgellm.chat.families._partial import Partial
from edgellm.chat.schemas import ANNOTATIONS, JOINTS, arguments_schema, moved, variants
from edgellm.chat.tools import JSON_OPTIONS, Call, CallDelta, Tool, ToolCall

Mark = Callable[[str], str]  # a text in a grammar: the control token that it is, or the text
Parse = Callable[[str, Sequence[Tool]], Sequence[Call | ToolCall] | None]  # ToolCall: with the id that the model wrote
Partials = Callable[[str, Sequence[Tool]], Partial | None]
Segment = str | ToolCall | CallDelta
Write = Callable[[Sequence[Call]], list[str]]  # calls as blocks
MAX_PARTS = 64  # bits of the parameter that rules may have
ANY_TEXT = "TEXT: /(.|\\n)*/"


def counted(signs: str, each: int) -> Callable[[str], int]:
    """The cost of a try to parse a block, in characters that the JSON module reads: each of some signs as many as `each`."""
    return lambda body: len(body) + each * sum(map(body.count, signs))


def nothing(tools: Sequence[Tool], mark: Mark) -> str:
    return '""'


JSON_COST = counted("{", 20)


class Splitter(Protocol):
    """Tells text from calls, piece by piece. `thinking`: the text is thinking, in which openers alone count."""

    thinking: bool

    def restart(self) -> None:
        """The answer begins here: the text before was thinking."""

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """The text and the calls that are complete."""

    def flush(self) -> tuple[str, list[ToolCall]]:
        """The rest, at the end of the answer; of a block that is cut, the calls before the one that is."""

    def segments(self, text: str) -> list[Segment]:
        """As `push`, in their order."""

    def rest(self) -> list[Segment]:
        """As `flush`, in their order."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a family of models writes its calls.

    A block begins with an opener and ends with a closer, or with the answer where there is none. `parse` gets what stands
    between them and returns its calls. It returns None where there are none and none can be, whatever follows: then it is text. It
    raises ValueError where there are none as yet, and Cut where the block ends within a call. `body` is the part of a grammar
    (Lark) between opener and closer, and rules of its own. `write` is the way back from calls, for templates that leave them out.
    """

    name: str
    detects: tuple[tuple[str, ...], ...]  # texts of a template that show it: all of one of these
    openers: tuple[str, ...]
    parse: Parse
    closers: tuple[str, ...] = ()
    at_start: bool = False  # an opener counts at the beginning of the answer alone
    keeps_opener: bool = False  # the opener is part of what is parsed
    markers: tuple[str, ...] = ()  # control tokens that the parser must see
    unseen: tuple[str, ...] = ()  # those of its openers that it need not see
    body: Callable[[Sequence[Tool], Mark], str] = nothing
    values: tuple[str, str] | None = None  # where texts stand without quotes: what leads to a value (an expression), what ends it
    whole_body: bool = False  # the body has the opener in it
    starts: str = ""  # how a call begins, with its tool's name for {}, where the answer begins with it
    answers: tuple[tuple[str, str], ...] = ()  # control tokens that the text around calls may stand between
    write: Write | None = None
    call_id: Callable[[str, int], str] | None = None  # of the n-th call of a name, where the model reads ids
    cost: Callable[[str], int] = JSON_COST  # of parsing a block in vain
    splitter: Callable[[Format, Sequence[Tool]], Splitter] | None = None  # where CallSplitter does not do
    prefill: tuple[str, str] | None = None  # behind a prompt that ends with the first, where there are no tools
    # What models write that stray from it.
    parse_last: Parse | None = None  # reads a block that nothing follows, where `parse` finds no call
    partial: Partials | None = None  # reads a block that is still being written
    first: str = ""  # signs with which a block may begin, behind white space; with others it is text at once
    ends: tuple[str, ...] = ()  # behind one of these a call is complete, also where the closer is missing
    continues: str = ""  # with this behind such a mark it is not
    bare: tuple[str, str] | None = None  # how a single call begins and ends where opener and closer are missing; {}: its name
    keeps_closer: bool = False  # the closer is part of what is parsed
    follows: tuple[str, ...] = ()  # marks that mean nothing where they follow a call
    shows: str = ""  # how a tool's name stands in a block: what its opener begins may be text as long as it is missing
    forms: tuple[str, ...] = ()  # how a block begins on a line of its own, without white space; then there is no opener
    in_code: bool = True  # also on lines of a fence of code
    others: tuple[Format, ...] = ()  # what may stand between the same marks, by its `first`

    def suited(self, block: str) -> Format:
        """The format of a block that begins so behind its opener."""
        sign = block.lstrip()[:1]
        if not sign or sign in self.first:
            return self
        return next((other for other in self.others if sign in other.first), self)


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


def marked(text: str, marks: Iterable[str], mark: Mark) -> str:
    """A text in a grammar, those marks in it that are control tokens as tokens."""
    tokens = sorted((each for each in marks if mark(each) != literal(each)), key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, tokens))})", text) if tokens else [text]
    return " ".join(mark(part) for part in parts if part)


def in_any_order(rule: str, parts: Sequence[tuple[str, bool]], end: str = "", cuts: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Parts of a grammar in any order, each once at most, and their end, and its rules; those that are `True` must be there.

    `cuts`: the same parts as they stand where nothing follows them, "" where they cannot.
    """
    if len(parts) > MAX_PARTS or not (len(parts) > 1 or any(cuts)):
        return " ".join([*(part if needed else f"({part})?" for part, needed in parts), end]), []
    ways = [(end or '""') + _if_set(parts)]
    ways += [f"{rule}_{k} {rule}::set_bit({k}) %if bit_clear({k})" for k in range(len(parts))]
    ways += [f"{cut} %if bit_clear({k})" for k, cut in enumerate(cuts) if cut]
    bodies = [f"{rule}_{k}: {part}" for k, (part, _) in enumerate(parts)]
    return f"{rule}::0", [f"{rule}::_: {' | '.join(ways)}", *bodies]


def _if_set(parts: Sequence[tuple[str, bool]]) -> str:
    """The condition that all parts are there that must be."""
    condition = ""
    for each in reversed([f"bit_set({k})" for k, (_, must) in enumerate(parts) if must]):
        condition = f"and({each}, {condition})" if condition else each
    return f" %if {condition}" if condition else ""


JSON_SPACE = "JSON_SPACE: /( |\\n{1,2}[ \\t]{0,20})/"  # as JSON_OPTIONS has it
OBJECT_KEYS = frozenset({"type", "properties", "required", "additionalProperties", *JOINTS, "$defs", "definitions"})
MAX_OBJECTS = 8  # that arguments may be, to stand in any order


def arguments(tool: Tool) -> str:
    """The JSON of a tool's arguments in a grammar: a rule that `arguments_rules` defines."""
    return f"args_{zlib.crc32(tool.name.encode()):08x}"


def arguments_rules(tool: Tool) -> list[str]:
    """That rule and those below it: properties in any order, each once at most, where the schema says no more of them."""
    rule = arguments(tool)
    if set(tool.parameters) - ANNOTATIONS - OBJECT_KEYS:
        return [f"{rule}: {inline(tool.parameters)}"]
    objects = variants(tool.name, tool.parameters)
    if len(objects) > MAX_OBJECTS or any(
        each.get("additionalProperties", False) is not False or not 1 < len(each["properties"]) <= MAX_PARTS for each in objects
    ):
        return [f"{rule}: {inline(tool.parameters)}"]
    rules = [f"{rule}: {' | '.join(f'{rule}_{n}' for n in range(len(objects)))}"]
    for n, each in enumerate(objects):
        pairs = [
            (_pair(name, inline(schema, tool.parameters)), name in each["required"]) for name, schema in each["properties"].items()
        ]
        rules += listed_in_any_order(f"{rule}_{n}", pairs, '"{" JSON_SPACE?', 'JSON_SPACE? "," JSON_SPACE?', 'JSON_SPACE? "}"')
    return rules


def listed_in_any_order(rule: str, parts: Sequence[tuple[str, bool]], begin: str, comma: str, end: str) -> list[str]:
    """Rules of a list whose parts come in any order, each once at most; those that are `True` must be there."""
    first = [f"{rule}_{k} {rule}_more::{1 << k}" for k in range(len(parts))]
    more = [f"{comma} {rule}_{k} {rule}_more::set_bit({k}) %if bit_clear({k})" for k in range(len(parts))]
    return [
        f"{rule}: {begin} ({' | '.join([*([end] if not any(must for _, must in parts) else []), *first])})",
        f"{rule}_more::_: {' | '.join([end + _if_set(parts), *more])}",
        *(f"{rule}_{k}: {part}" for k, (part, _) in enumerate(parts)),
    ]


def _pair(key: str, value: str) -> str:
    return f'{literal(json.dumps(key, ensure_ascii=False))} JSON_SPACE? ":" JSON_SPACE? {value}'


def called(tool: Tool, key: str, *, name: str = "name", before: str = "", after: str = "", turned: bool = True) -> str:
    """A call as a JSON object in a grammar: its name and its arguments; `turned`: also the other way round; `before` and `after`:
    pairs around them."""
    told, given = _pair(name, literal(json.dumps(tool.name, ensure_ascii=False))), _pair(key, arguments(tool))
    comma = 'JSON_SPACE? "," JSON_SPACE?'
    both = f"({told} {comma} {given}{after}{f' | {given} {comma} {told}' if turned else ''})"
    return f'("{{" JSON_SPACE? {before}{both} JSON_SPACE? "}}")'


def optional_pair(key: str, value: str, *, first: bool) -> str:
    """A pair of such an object that may be left out, before the others or behind them."""
    comma = 'JSON_SPACE? "," JSON_SPACE?'
    return f"({_pair(key, value)} {comma})? " if first else f" ({comma} {_pair(key, value)})?"


def with_forms(rules: str, **forms: str) -> str:
    """A grammar of llguidance: rules (Lark) that call other grammars by their names, @name."""
    found = [
        {**(json.loads(form)["grammars"][0] if form.startswith("{") else {"lark_grammar": form}), "name": name}
        for name, form in forms.items()
    ]
    return json.dumps({"grammars": [{"lark_grammar": rules}, *found]})


def plain(tools: Sequence[Tool]) -> list[Tool]:
    """Tools with the schemas that grammars are made of."""
    return [tool._replace(parameters=arguments_schema(tool.parameters)) for tool in tools]


def named(tools: Sequence[Tool], others: str = r"[\w./:-]+") -> str:
    """A regular expression for the name of a tool: those that are known, or others."""
    return any_of([tool.name for tool in tools], others)


def any_of(names: Iterable[str], others: str) -> str:
    """A regular expression for one of some names, the longest first, or for others."""
    return "|".join([*map(re.escape, sorted(names, key=len, reverse=True)), others])
