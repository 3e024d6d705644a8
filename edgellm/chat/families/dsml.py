"""Calls of DeepSeek V3.2 and V4 in DSML: tags with a mark of their own, and an attribute that marks texts or JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any  # Any: JSON

from edgellm.chat.families._format import Format, Mark, in_any_order, inline, literal
from edgellm.chat.families._partial import Partial, unended
from edgellm.chat.families._reading import Cut, decoded, skipped
from edgellm.chat.families._tags import check_end
from edgellm.chat.families._texts import number_terminal, text_terminal
from edgellm.chat.schemas import Schema, argument_of, variants
from edgellm.chat.tools import Call, Tool
from edgellm.errors import SchemaError

DSML = "｜DSML｜"
CLOSE = f"</{DSML}parameter>"
INVOKE = re.compile(rf'\s*<{DSML}invoke\s+name="([^"\n]+)"\s*>')
INVOKED = re.compile(rf"\s*</{DSML}invoke>")
PARAMETER = re.compile(rf'\s*<{DSML}parameter\s+name="([^"\n]+)"\s+string="(true|false)"\s*>')
JSON_END = re.compile(r"\s*" + CLOSE)
NAME = re.compile(r'[^"\n]+')
CLOSED, AS_TEXT, AS_JSON = CLOSE + "\n", '"true">', '"false">'


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    calls, at, size = list[Call](), 0, len(block.rstrip())
    while not calls or at < size:
        begins = skipped(block, at)
        try:
            found = _call_at(block, begins)
        except Cut as cut:
            raise Cut(calls, begins, cut.needs) from None
        if found is None:
            return None
        calls.append(found[0])
        at = found[1]
    return calls


def _call_at(block: str, at: int) -> tuple[Call, int] | None:
    """The call that begins there, and where it ends. Raises Cut."""
    head, found = INVOKE.match(block, at), dict[str, Any]()
    behind = None if head is None else _arguments(block, head.end(), found)
    end = None if behind is None else INVOKED.match(block, behind)
    if head is None or behind is None or end is None:
        check_end(block, at if behind is None else behind)
        return None
    return Call(head[1], found), end.end()


def partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    """The first call of a block that is still being written."""
    head, found = INVOKE.match(block), dict[str, Any]()
    if head is None:
        return None
    try:
        _arguments(block, head.end(), found)
    except Cut as cut:
        return Partial(head[1], found, cut.begun)
    except ValueError:
        pass
    return Partial(head[1], found)


def _arguments(block: str, at: int, found: dict[str, Any]) -> int | None:
    """Where the arguments that begin at `at` end; they are added to `found`. Raises Cut."""
    while head := PARAMETER.match(block, at):
        if head[2] == "true":
            end = block.find(CLOSE, head.end())
            if end < 0:
                raise Cut(needs=CLOSE, begun=(head[1], unended(block[head.end() :], CLOSE)))
            found[head[1]], at = block[head.end() : end], end + len(CLOSE)
            continue
        value, end = decoded(block, skipped(block, head.end()))
        tail = JSON_END.match(block, end)
        if tail is None:
            check_end(block, end)
            return None
        found[head[1]], at = value, tail.end()
    return at


def body(tools: Sequence[Tool], mark: Mark) -> str:
    terminals, rules = dict[str, str](), list[str]()
    calls = " | ".join(_call(tool, each, terminals, rules) for tool in tools for each in variants(tool.name, tool.parameters))
    return "\n".join(['("\\n")? call+', f"call: {calls}", *rules, *(f"{name}: {text}" for text, name in terminals.items())])


def _call(tool: Tool, arguments: Schema, terminals: dict[str, str], rules: list[str]) -> str:
    parts = [
        (_parameter(_name(name, tool), schema, tool, terminals), name in arguments["required"])
        for name, schema in arguments["properties"].items()
    ]
    inner, more = in_any_order(f"arguments_{len(rules)}", parts)
    rules += more
    head = literal(f'<{DSML}invoke name="{_name(tool.name, tool)}">\n')
    empty = '"\\n"?' if not arguments["required"] else ""  # a line that templates leave empty where there are no arguments
    return f"({head} {inner} {empty} {literal(f'</{DSML}invoke>' + chr(10))})"


def _parameter(name: str, schema: Any, tool: Tool, terminals: dict[str, str]) -> str:
    """A text as it is where the schema may be one and lets it stand so, or any value as JSON."""
    head, ways, allowed = f'<{DSML}parameter name="{name}" string=', list[str](), argument_of(schema, tool.parameters)
    others = [text for text in allowed.texts if "enum" in text and allowed.others]
    for text in allowed.texts:
        if "enum" in text and all(CLOSE not in each for each in text["enum"]):
            ways.append(f"{literal(head + AS_TEXT)} ({' | '.join(literal(each + CLOSED) for each in text['enum'])})")
        elif "enum" not in text and (terminal := text_terminal(text, without=CLOSE, end=CLOSED)) is not None:
            ways.append(f"{literal(head + AS_TEXT)} {terminals.setdefault(terminal, f'TEXT_{len(terminals)}')}")
        elif text not in others:
            others.append(text)
    for each in (*others, *allowed.others):
        number = number_terminal(each)
        value = inline(each, tool.parameters) if number is None else terminals.setdefault(number, f"TEXT_{len(terminals)}")
        ways.append(f"{literal(head + AS_JSON)} {value} {literal(CLOSED)}")
    if not ways:
        ways.append(f"{literal(head + AS_JSON)} {inline(schema, tool.parameters)} {literal(CLOSED)}")
    return f"({' | '.join(dict.fromkeys(ways))})"


def _name(name: str, tool: Tool) -> str:
    if not NAME.fullmatch(name):
        raise SchemaError(
            f"the tool {tool.name} has the name {name!r}, which this model's calls cannot hold; use no quotes and no new lines."
        )
    return name


OPENERS = (f"<{DSML}function_calls>", f"<{DSML}tool_calls>")
FORMAT = Format(
    "deepseek-v3.2",
    ((DSML, "function_calls"),),
    OPENERS,
    parse,
    tuple(each.replace("<", "</") for each in OPENERS),
    body=body,
    values=(PARAMETER.pattern, CLOSE),
    first="<",
    partial=partial,
    ends=(f"</{DSML}invoke>",),
    bare=(f'<{DSML}invoke name="{{}}">', f"</{DSML}invoke>"),
)
V4_FORMAT = replace(FORMAT, name="deepseek-v4", detects=((DSML,),), openers=OPENERS[::-1], closers=FORMAT.closers[::-1])
