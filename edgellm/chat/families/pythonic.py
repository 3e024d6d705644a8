"""Calls in Python's syntax, a list of them as the whole answer: Llama 3.2 and 4, and others."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any  # Any: JSON

from edgellm.chat.families._format import MAX_PARTS, Format, Mark, any_of, counted, inline, listed_in_any_order, literal, named
from edgellm.chat.families._partial import Partial
from edgellm.chat.families._reading import Cut, skipped
from edgellm.chat.schemas import argument_of, variants
from edgellm.chat.tools import Call, Tool

OTHERS = r"[^][(){},=\s]++"  # names that no tool has
BEGUN = re.compile(rf"(?:{OTHERS})?\s*")
AFTER = re.compile(r"\s*(?:,\s*|$)")
SIGNS = re.compile(r"""'[^'\\]*+(?:\\.[^'\\]*+)*+(?P<ended>')?|"[^"\\]*+(?:\\.[^"\\]*+)*+(?P<closed>")?|[][(){},]""", re.DOTALL)
ESCAPE = re.compile(r"\\(.)", re.DOTALL)
OPEN_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|N(?:\{[^}]*)?|[0-7]{0,2})?$")  # that is cut
TEXT = r"TEXT: /'([^'\\\n]|\\[nt'\\])*'/"  # a text in single quotes
COST = counted("(){}[],'\"", 25)
_Texts = tuple[str, dict[str, str]]  # a call, its arguments as they are written
WORDS = {"true": True, "false": False, "null": None}


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """[name(argument=value, ...), ...] with literal values; JSON's words for them are taken too. Names need not be Python's."""
    at, stop = skipped(block, 0), len(block.rstrip())
    listed = block.startswith("[", at)
    closed = listed and block.endswith("]", at + 1, stop)
    calls = _calls(block, at + listed, stop - closed, tools, ends=closed)
    if calls is not None and listed and not closed:
        raise Cut(calls, stop)
    return calls


def _calls(block: str, at: int, stop: int, tools: Sequence[Tool], *, ends: bool) -> list[Call] | None:
    """The calls from `at` to `stop`. `ends`: no more of them can follow. Raises ValueError, Cut."""
    found, at, stop = list[_Texts](), skipped(block, at), len(block[:stop].rstrip())
    head, known = re.compile(rf"({named(tools, OTHERS)})\s*\(\s*"), dict[str, list[str]]()
    while at < stop:
        match = head.match(block, at, stop)
        if match is None:
            if not ends and _may_go_on(block[at:stop], [tool.name for tool in tools]):
                raise Cut(map(_evaluated, found), at, ")")
            return None
        if (name := match[1]) not in known:
            known[name] = _keys(name, tools)
        arguments = dict[str, str]()
        try:
            end = _arguments(block, match.end(), stop, known[name], arguments)
        except Cut as cut:
            raise Cut(map(_evaluated, found), at, cut.needs) from None
        after = AFTER.match(block, end, stop)
        if after is None:
            return None
        found.append((name, arguments))
        at = after.end()
    return [*map(_evaluated, found)]  # not before the end: that takes most of the time


def _evaluated(texts: _Texts) -> Call:
    name, arguments = texts
    return Call(name, {key: value_of(text) for key, text in arguments.items()})


def partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    """The first call of a block that is still being written."""
    at = skipped(block, 0)
    head = re.compile(rf"({named(tools, OTHERS)})\s*\(\s*").match(block, skipped(block, at + block.startswith("[", at)))
    if head is None or all(tool.name != head[1] for tool in tools):
        return None
    texts, found, unfinished = dict[str, str](), dict[str, Any](), None
    with suppress(ValueError, RecursionError):
        try:
            _arguments(block, head.end(), len(block), _keys(head[1], tools), texts)
        except Cut as cut:
            unfinished = cut.begun
        for key, text in texts.items():
            found[key] = value_of(text)
        if unfinished is not None and (begun := _begun(unfinished[1])) is not None:
            return Partial(head[1], found, (unfinished[0], begun))
    return Partial(head[1], found)


def _begun(text: str) -> str | None:
    """The value so far of a literal that is being written, where it is a text between single quotes or double ones."""
    text = text.lstrip()
    quoted = SIGNS.match(text)
    if quoted is None or (quote := text[0]) not in "'\"" or text.startswith(quote * 2):
        return None
    ended = quoted.lastgroup is not None
    value = value_of(quoted[0] if ended else OPEN_ESCAPE.sub("", text) + quote)
    return value if isinstance(value, str) else None


def _keys(name: str, tools: Sequence[Tool]) -> list[str]:
    """The arguments of a tool."""
    return [key for tool in tools if tool.name == name for each in variants(name, tool.parameters) for key in each["properties"]]


def _arguments(text: str, at: int, stop: int, known: Sequence[str], found: dict[str, str]) -> int:
    """Where the call ends whose arguments begin at `at`; their texts are added to `found`. Raises ValueError, Cut."""
    head = re.compile(rf"({any_of(known, OTHERS)})\s*=")
    while not text.startswith(")", at, stop):
        match = head.match(text, at, stop)
        if match is None:
            raise Cut(needs=")") if _may_go_on(text[at:stop], known) else ValueError("an argument has no name")
        try:
            end = _end(text, match.end(), stop)
        except Cut as cut:
            raise Cut(needs=cut.needs, begun=(match[1], text[match.end() : stop])) from None
        found[match[1]] = text[match.end() : end]
        at = skipped(text, end + 1) if text[end] == "," else end
    return at + 1


def _may_go_on(rest: str, names: Sequence[str]) -> bool:
    """True if a name is cut."""
    return BEGUN.fullmatch(rest) is not None or any(name.startswith(rest) for name in names)


def _end(text: str, at: int, stop: int) -> int:
    """Where a value ends: at a comma or a bracket that belong to none within it. Raises Cut."""
    depth = 0
    for match in SIGNS.finditer(text, at, stop):
        sign = match[0][0]
        if sign in "'\"":
            if match.lastgroup is None:
                raise Cut(needs=sign)
        elif sign in "([{":
            depth += 1
        elif depth == 0 and sign in ",)":
            return match.start()
        elif sign in ")]}":
            depth -= 1
    raise Cut(needs=")")


def value_of(text: str) -> Any:
    """A literal of Python. Raises ValueError, RecursionError."""
    try:
        return _value(ast.parse(ESCAPE.sub(_escaped, text.strip()), mode="eval").body)
    except (SyntaxError, MemoryError) as error:
        raise ValueError("is not a literal") from error


def _escaped(match: re.Match[str]) -> str:
    """An escape; Python warns of those that it does not know, and takes them as they are."""
    return match[0] if match[1] in "\n\\'\"abfnrtv01234567xNuU" else "\\" + match[0]


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            if isinstance(node.value, bytes | complex) or node.value is Ellipsis:
                raise ValueError("is not JSON")
            return node.value
        case ast.Name(id=name) if name in WORDS:
            return WORDS[name]
        case ast.List() | ast.Tuple():
            return [_value(each) for each in node.elts]
        case ast.Dict():
            return {str(_value(key)): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
    raise ValueError("is not a literal")


def body(tools: Sequence[Tool], mark: Mark) -> str:
    """The calls between the brackets; arguments in any order, each once at most, and all that are required."""
    rules, names = list[str](), list[str]()
    for tool in tools:
        for each in variants(tool.name, tool.parameters):
            names.append(f"function_{len(names)}")
            parts = [
                (f"{literal(name + '=')} {_written(schema, tool.parameters)}", name in each["required"])
                for name, schema in each["properties"].items()
            ]
            begin = literal(tool.name + "(")
            if 0 < len(parts) <= MAX_PARTS:
                rules += listed_in_any_order(names[-1], parts, begin, '"," " "?', '")"')
            else:
                inner = ' "," " "? '.join(part for part, _ in parts)
                rules.append(f'{names[-1]}: {begin} {inner} ")"')
    return "\n".join(['call ("," " "? call)*', f"call: {' | '.join(names)}", *rules, TEXT])


def _written(schema: Any, within: Mapping[str, Any]) -> str:
    """A value as Python has it where it differs from JSON."""
    allowed, ways = argument_of(schema, within), list[str]()
    for each in allowed.texts:
        if "enum" in each:
            ways += [literal(repr(word)) for word in each["enum"]]
        elif not set(each) - {"type"}:
            ways.append("TEXT")
    if allowed.may_be("boolean"):
        ways.append('"True" | "False"')
    if allowed.may_be("null"):
        ways.append('"None"')
    only = allowed.others == ({"type": "boolean"},) and not allowed.texts
    return f"({ways[-1]})" if only else f"({' | '.join([*ways, inline(schema, within)])})"


def listed_body(tools: Sequence[Tool], mark: Mark) -> str:
    inner, _, rules = body(tools, mark).partition("\n")
    return f'"[" {inner} "]"\n{rules}'


FORMAT = Format(
    "pythonic",
    (("[func_name1(",),),
    ("[",),
    parse,
    ("]",),
    at_start=True,
    keeps_opener=True,
    keeps_closer=True,
    whole_body=True,
    body=listed_body,
    cost=COST,
    partial=partial,
    shows="{}(",
)
