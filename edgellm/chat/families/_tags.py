"""Calls whose arguments stand between tags of their own, as several families write them: found, and as a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any  # Any: JSON

from edgellm.chat.families._format import Format, Mark, counted, in_any_order, inline, literal, marked
from edgellm.chat.families._partial import Partial, unended
from edgellm.chat.families._reading import Cut, decoded, skipped
from edgellm.chat.families._texts import ANY, escaped, number_terminal, text_terminal
from edgellm.chat.families.pythonic import value_of
from edgellm.chat.schemas import Argument, Schema, argument_of, variants
from edgellm.chat.tools import Call, Tool
from edgellm.errors import SchemaError

LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
WORDS = {"True": True, "False": False, "None": None}  # models write Python's words now and then
NAME = re.compile(r"[^<>\"\s]([^<>\"\n]*[^<>\"\s])?")
JSON_START = re.compile(r'["\[{\d-]|true|false|null')
UNFINISHED = re.compile(r"\s*(?:<[^<>]*)?")  # a tag, or none as yet
TAG = re.compile(r"(</?\w+>)")
CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)


COST = counted("<", 160)  # tags, at which the parser stops


@dataclass(slots=True)
class _Reading:
    """One look at a block."""

    block: str
    tools: Sequence[Tool]
    unsure: bool = False  # JSON is cut, which may be another value when there is more of it
    given: set[str] | None = None  # names of arguments
    last: bool = False  # nothing follows the block: a value may end with its call
    partial: bool = False  # more follows: what is read must not depend on it


@dataclass(frozen=True)
class Tags:
    """The tags around names, as {}, and around values. The model may write other white space between tags."""

    call: str
    key: str  # to the value
    close: str  # behind a value, with its white space
    end: str = ""  # of a call
    before: str = "\n"  # the first call of a block
    several: bool = False  # calls in a block
    closer: str = ""  # of a block whose calls have no end of their own

    def format(
        self,
        name: str,
        mark: str,
        detects: tuple[tuple[str, ...], ...],
        *,
        ends: tuple[str, ...],
        first: str = "",
        bare: tuple[str, str] | None = None,
    ) -> Format:
        """The format of calls with these tags within the tag `mark`; the others are as `Format` has them."""
        opener, closer = f"<{mark}>", f"</{mark}>"
        return Format(
            name,
            detects,
            (opener,),
            self.parse,
            (closer,),
            markers=(opener, closer),
            body=self.body,
            cost=COST,
            values=self.values,
            first=first,
            partial=self.partial,
            parse_last=self.parse_last,
            ends=ends,
            bare=bare,
        )

    def parse_last(self, block: str, tools: Sequence[Tool]) -> list[Call] | None:
        """As `parse`, of a block that nothing follows: the tag behind its last value may be missing."""
        return self.parse(block, tools, last=True)

    def parse(self, block: str, tools: Sequence[Tool], *, last: bool = False) -> list[Call] | None:
        """Values are texts where the schema says so, else JSON. A tag that ends a value may be missing before the next key."""
        calls, at, doubt = list[Call](), 0, None
        size = len((block.rstrip().removesuffix(self.closer) if last else block).rstrip())
        reading = _Reading(block, tools, last=last)
        while not calls or (self.several and at < size):
            begins = skipped(block, at)
            try:
                found = self._call_at(reading, begins)
            except Cut as cut:
                raise Cut(calls, begins, cut.needs) from None
            if reading.unsure and doubt is None:
                doubt = Cut(list(calls), begins, self._bare_close)
            if found is None:
                break
            calls.append(found[0])
            at = found[1]
        else:
            if at >= size:
                return calls
        if doubt is not None:
            raise doubt
        return None

    def partial(self, block: str, tools: Sequence[Tool]) -> Partial | None:
        """The first call of a block that is still being written."""
        head = self._call.match(block)
        if head is None or (self.call == "{}" and "<" not in block):
            return None
        name = head[1].strip()
        reading, arguments = _Reading(block, tools, partial=True), dict[str, Any]()
        with suppress(ValueError, RecursionError):
            try:
                self._arguments(reading, head.end(), name, arguments)
            except Cut as cut:
                return Partial(name, arguments, cut.begun)
        return Partial(name, arguments)

    def _call_at(self, reading: _Reading, at: int) -> tuple[Call, int] | None:
        """The call that begins there, and where it ends. Raises Cut."""
        head = self._call.match(reading.block, at)
        if head is None:
            check_end(reading.block, at)
            return None
        if not (name := head[1].strip()):
            return None
        arguments, at = self._arguments(reading, head.end(), name)
        end = self._end.match(reading.block, at)
        if end is None:
            check_end(reading.block, at)
            return None
        if not (self.end or arguments or any(tool.name == name for tool in reading.tools)):
            return None  # any word would be a call
        return Call(name, arguments), end.end()

    def _arguments(
        self, reading: _Reading, at: int, name: str, arguments: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], int]:
        block, tools = reading.block, reading.tools
        within = next((tool.parameters for tool in tools if tool.name == name), {})
        known = [each["properties"] for tool in tools if tool.name == name for each in variants(name, tool.parameters)]
        if len(known) > 1:
            if reading.given is None:
                reading.given = {key.strip() for key in self._key.findall(block)}
            known = [each for each in known if reading.given <= set(each)] or known
        arguments = {} if arguments is None else arguments
        while key := self._key.match(block, skipped(block, at)):
            argument = key[1].strip()
            schema: Any = next((each[argument] for each in known if argument in each), None)
            allowed = None if schema in (None, True) else argument_of(schema, within)  # True: named in required alone
            others = {each for properties in known for each in properties} - set(arguments) - {argument}
            if reading.partial and any(each[argument] != schema for each in known if argument in each):
                raise Cut
            try:
                value, behind = self._value(reading, key.end(), allowed, others)
            except Cut as cut:
                raise Cut(needs=cut.needs, begun=cut.begun and (argument, cut.begun[1])) from None
            arguments[argument], at = value, behind
        return arguments, at

    def _value(self, reading: _Reading, at: int, allowed: Argument | None, others: set[str]) -> tuple[Any, int]:
        """A value and where it ends; JSON may hold the tag that ends it. None: nothing is known of it. `others`: arguments that may
        follow. Raises Cut."""
        block = reading.block
        start, is_text = skipped(block, at), allowed is not None and bool(allowed.texts)
        if allowed is None or not is_text:
            may_be_json = JSON_START.match(block, start) is not None  # errors cost a look at all that comes before
        else:
            kinds = {"[": "array", "{": "object"}
            may_be_json = (block.startswith('"', start) and not all(map(self._is_bare, allowed.texts))) or (
                block[start : start + 1] in kinds and allowed.may_be(kinds[block[start : start + 1]])
            )
        if may_be_json:
            try:
                value, end = decoded(block, start)
            except Cut:
                if reading.partial:
                    raise
                reading.unsure = True
            except ValueError:
                pass
            else:
                if match := self._close.match(block, end):
                    return value, match.end()
                following = skipped(block, end)
                if self._last and not is_text and self._follows(reading, following):
                    return value, following
                reading.unsure |= UNFINISHED.fullmatch(block, end) is not None
                if reading.partial and reading.unsure:
                    raise Cut
        if is_text and allowed is not None and (named := self._one_of(reading, at, allowed)):
            return named
        try:
            end, after = self._text_end(reading, at, others)
        except Cut as cut:
            certain = allowed is not None and not allowed.others and not any("enum" in each for each in allowed.texts)
            begun = self._begun(block[at:]) if reading.partial and cut.needs and certain else None
            raise Cut(needs=cut.needs, begun=None if begun is None else ("", begun)) from None
        text = _unwrapped(self._stripped(block[at:end]))
        if allowed is None or not is_text:
            return _untyped(text), after
        word = text.strip()
        if allowed.others and all("enum" in each and text not in each["enum"] for each in allowed.texts):
            with suppress(ValueError, RecursionError):
                return json.loads(word), after  # none of the texts that it may be
        if word in LITERALS and allowed.may_be("null" if LITERALS[word] is None else "boolean"):
            return LITERALS[word], after
        return text, after

    def _one_of(self, reading: _Reading, at: int, allowed: Argument) -> tuple[str, int] | None:
        """The text of an enum that stands there, and where it ends, before a tag: its own, the next key or the end of the call."""
        block = reading.block
        at += self._lines and block.startswith("\n", at)
        for value in sorted((value for text in allowed.texts for value in text.get("enum", ())), key=len, reverse=True):
            if block.startswith(value, at):
                end = at + len(value)
                if match := self._close.match(block, end):
                    return value, match.end()
                following = skipped(block, end)
                if self._last and self._follows(reading, following):
                    return value, following
        return None

    def _follows(self, reading: _Reading, at: int) -> bool:
        """True where a key stands, or the end of the call."""
        if self._key.match(reading.block, at):
            return True
        if self.end:
            return self._end.match(reading.block, at) is not None
        return not reading.partial and (at == len(reading.block) or reading.block.startswith(self.closer, at))

    def _text_end(self, reading: _Reading, at: int, others: set[str]) -> tuple[int, int]:
        """Where a text ends, and what comes behind it begins. Raises Cut."""
        block = reading.block
        end = block.find(self._bare_close, at)
        if self._last and others:  # the tag is missing where the only mention of another argument comes first
            for key in self._key.finditer(block, at, end if end >= 0 else len(block)):
                begins = not self.end or block[key.start() - 1] == "\n"
                if key[1].strip() in others and block.count(key[0].rstrip()) == 1 and begins:
                    if reading.partial:
                        raise Cut
                    return key.start() - (not self._lines and block[key.start() - 1] == "\n"), key.start()
        if end < 0 and reading.last and self._last and (end := block.rfind(self._last, at)) >= 0:
            return end - (not self._lines and block[end - 1] == "\n"), end
        if end < 0:
            raise Cut(needs=self._bare_close)
        return end, end + len(self._bare_close)

    def _begun(self, text: str) -> str | None:
        """As much of a text that is being written as stays, whatever follows."""
        if (not self._lines and text.startswith("\n")) or "<![CDATA[".startswith(text.strip()[:9]):
            return None
        text = text.removeprefix("\n")
        for mark in filter(None, (self._last, self._bare_close)):
            text = unended(text.partition(mark)[0], mark)
        before, new_line, line = text.rpartition("\n")
        if (new_line and not line) or ((new_line or self._lines) and line[:1] == "<"):  # the tag may be missing
            return before
        return unended(text, self.key.partition("{}")[0]) if not self.end else text

    def _stripped(self, text: str) -> str:
        """Without the new lines of the tags, or those that a model writes around a text although its tags have none."""
        if self._lines:
            return text.removeprefix("\n").removesuffix("\n")
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "\n" else text

    def _is_bare(self, schema: Schema) -> bool:
        """True if the grammar has a text as it is; where a schema says more than can be said of a bare text it stands as JSON."""
        if "enum" not in schema:
            return self._terminal(schema) is not None
        return all(
            self._bare_close not in value and not value.startswith('"') and (self._lines or self._stripped(value) == value)
            for value in schema["enum"]
        )

    def _terminal(self, schema: Schema, end: str = "") -> str | None:
        return text_terminal(schema, without=self._bare_close, end=end, lined=self._lines)

    def body(self, tools: Sequence[Tool], mark: Mark) -> str:
        rules, terminals = list[str](), dict[str, str]()
        calls = " | ".join(
            self._written_call(tool, each, mark, rules, terminals)
            for tool in tools
            for each in variants(tool.name, tool.parameters)
        )
        start = f"({literal(self.before)})? " if self.before else ""
        first = f'{start}call ("\\n"? call)*' if self.several else f"{start}call"
        return "\n".join([first, f"call: {calls}", *rules, *(f"{name}: {text}" for text, name in terminals.items())])

    def _written_call(self, tool: Tool, arguments: Schema, mark: Mark, rules: list[str], terminals: dict[str, str]) -> str:
        head = _marked(self.call.format(_name(tool.name, tool.name)), mark)
        keys = {name: _marked(self.key.format(_name(name, tool.name)), mark) for name in arguments["properties"]}
        parts = [
            (f"{keys[name]} {self._written(schema, tool, mark, terminals)}", name in arguments["required"])
            for name, schema in arguments["properties"].items()
        ]
        end = _marked(self.end.strip(), mark)
        cut = self._cut(terminals) if self._last and _marked(self._last, mark) == literal(self._last) else ""
        cuts = [
            f"{keys[name]} {cut}" if self._is_free(argument_of(schema, tool.parameters)) else ""
            for name, schema in arguments["properties"].items()
        ]
        inner, more = in_any_order(f"arguments_{len(rules)}", parts, end, cuts if cut else ())
        rules += more
        return f"({head} {inner})".replace("  ", " ")

    @property
    def values(self) -> tuple[str, str]:
        """See `Format.values`."""
        return self._key.pattern, self._bare_close

    def _is_free(self, allowed: Argument) -> bool:
        """True if an argument may be any text."""
        return any(not set(text) - {"type"} for text in allowed.texts) and not any("enum" in text for text in allowed.texts)

    def _cut(self, terminals: dict[str, str]) -> str:
        """A text that is not ended before its call ends, and what follows."""
        without, end = escaped(self._bare_close), escaped(self._last)
        terminal = f"(/{ANY}/ & ~/{ANY}{without}{ANY}/ & /{ANY}{end}{ANY}/)"
        return terminals.setdefault(terminal, f"TEXT_{len(terminals)}")

    def _written(self, schema: Any, tool: Tool, mark: Mark, terminals: dict[str, str]) -> str:
        """A value in the grammar, with the tag that ends it: a text stands as it is."""
        close, allowed = _marked(self.close, mark), argument_of(schema, tool.parameters)
        bare, rest = (
            [each for each in allowed.texts if self._is_bare(each)],
            [each for each in allowed.texts if not self._is_bare(each)],
        )
        if not bare:
            whole: Schema = dict(schema) if isinstance(schema, Mapping) else {}
            value = self._plain(whole, tool, terminals) if number_terminal(whole) else inline(schema, tool.parameters)
            return f"{value} {self._optional(mark)}"
        is_token, ways = close != literal(self.close), list[str]()
        for text in bare:
            if "enum" in text:
                ways.append(f"({' | '.join(map(literal, text['enum']))}) {self._optional(mark)}")
                continue
            terminal = self._terminal(text, "" if is_token else self.close)
            assert terminal is not None  # it is bare
            name = terminals.setdefault(terminal, f"TEXT_{len(terminals)}")
            ways.append(f"{name} {close}" if is_token else name)
        if not any(set(text) <= {"type"} for text in bare):  # else the text may be anything that JSON may be
            end = self._optional(mark).removesuffix("?") if not self._lines else self._optional(mark)  # a text ends with its line
            ways += [f"{self._plain(each, tool, terminals)} {end}" for each in (*rest, *allowed.others)]
        return f"({' | '.join(dict.fromkeys(ways))})"

    def _optional(self, mark: Mark) -> str:
        """The tag behind a value that is no text, which may be missing."""
        if not self.end:  # a call would be complete behind each digit
            return _marked(self.close, mark)
        tag = _marked(self.close.removeprefix("\n"), mark)
        return f'"\\n" ({tag})?' if self._lines else f'({tag} | "\\n")?'

    def _plain(self, schema: Schema, tool: Tool, terminals: dict[str, str]) -> str:
        """A value that is no text."""
        number = number_terminal(schema)
        return inline(schema, tool.parameters) if number is None else terminals.setdefault(number, f"TEXT_{len(terminals)}")

    @cached_property
    def _lines(self) -> bool:
        return self.close.startswith("\n")

    @cached_property
    def _last(self) -> str:
        """The mark behind the last value."""
        return self.end.strip() or self.closer

    @cached_property
    def _bare_close(self) -> str:
        return self.close.strip()

    @cached_property
    def _call(self) -> re.Pattern[str]:
        return re.compile(r"\s*" + _pattern(self.call))

    @cached_property
    def _key(self) -> re.Pattern[str]:
        return re.compile(_pattern(self.key))

    @cached_property
    def _close(self) -> re.Pattern[str]:
        return re.compile(r"\s*" + re.escape(self._bare_close))

    @cached_property
    def _end(self) -> re.Pattern[str]:
        return re.compile(r"\s*" + re.escape(self.end.strip()))


def _unwrapped(text: str) -> str:
    """A text without the marks of CDATA around it. Escapes of XML stay: templates write values as they are."""
    return section[1] if (section := CDATA.fullmatch(text)) is not None else text


def check_end(block: str, at: int) -> None:
    """Raises Cut where a block ends before a tag that is wanted, or within it."""
    if UNFINISHED.fullmatch(block, at):
        raise Cut


def _untyped(text: str) -> Any:
    """A value that is no JSON: some templates write lists and mappings as Python does, so their models do."""
    if text.lstrip()[:1] not in ("[", "{"):
        return WORDS.get(text.strip(), text)
    try:
        return value_of(text)
    except (ValueError, RecursionError):
        return text


def _pattern(text: str) -> str:
    """A tag with a name, as a regular expression that allows other white space."""
    before, after = (r"\s*".join(map(re.escape, part.split())) for part in text.split("{}"))
    return before + '([^<>"\n]+)' + after


def _marked(text: str, mark: Mark) -> str:
    """A text in a grammar, its tags as the control tokens that they are."""
    return marked(text, TAG.findall(text), mark)


def _name(name: str, tool: str) -> str:
    if not NAME.fullmatch(name):
        raise SchemaError(f"the tool {tool} has the name {name!r}, which this model's calls cannot hold; use no quotes, < or >.")
    return name
