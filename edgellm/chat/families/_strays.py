"""Calls as models of other families write them: JSON on its own lines, in a fence or between other tags, functions, Python."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from edgellm.chat.families import pythonic, qwen3_coder
from edgellm.chat.families._format import JSON_COST, Format, Mark, arguments, called, literal, named, optional_pair
from edgellm.chat.families._partial import Partial, arguments_of, of_json
from edgellm.chat.families._reading import Cut, decoded, skipped
from edgellm.chat.families._tags import COST
from edgellm.chat.schemas import variants
from edgellm.chat.tools import Call, Tool, call_of

LANGUAGES = ("json", "tool_call", "tool_code")  # of fences with which calls begin
FENCES = ("", "```", *(f"```{language}" for language in LANGUAGES))
FENCE = re.compile(r"\s*(```[a-z_]*)?\s*")
KEYS = ("arguments", "parameters")
TAGS = ("tool_call", "tool_calls", "tools", "function_call", "function_calls", "functioncall")
FUNCTION = qwen3_coder.TAGS


def json_lines(tools: Sequence[Tool]) -> Format:
    """The format for calls of these tools as JSON, one or a list: other JSON is text."""
    names = [json.dumps("".join(tool.name.split()), ensure_ascii=False) for tool in tools]
    forms = [
        f'{fence}{begin}{{{kind}"name":{name},"{key}":'
        for fence in FENCES
        for begin in ("", "[")
        for kind in ("", '"type":"function",')
        for name in names
        for key in KEYS
    ]
    return Format(
        "json",
        (),
        (),
        parse_json,
        ("}", "]"),
        keeps_opener=True,
        keeps_closer=True,
        whole_body=True,
        body=json_body,
        partial=_json_partial,
        follows=("```",),
        forms=tuple(forms),
    )


def python_lines(tools: Sequence[Tool]) -> Format:
    """The format for calls of these tools in Python's syntax, alone on their line. No grammar holds them: text may begin so."""
    forms = [f"{fence}{begin}{tool.name}(" for fence in ("", "```tool_code") for begin in ("", "[") for tool in tools]
    return Format(
        "python",
        (),
        (),
        parse_python,
        ("\n",),
        keeps_opener=True,
        whole_body=True,
        cost=pythonic.COST,
        follows=("```",),
        forms=tuple(forms),
        in_code=False,
    )


def tagged(format: Format) -> Format:
    """The format for calls between tags that are not those of a family."""
    tags = [tag for tag in TAGS if f"<{tag}>" not in format.openers]
    openers, closers = (tuple(f"<{slash}{tag}>" for tag in tags) for slash in ("", "/"))
    written = Format("tags", (), openers, parse_json, closers, first="{[`", ends=("}", "]"), body=json_body, partial=_json_partial)
    return with_others(written)


def functions(format: Format) -> Format:
    """The format for functions without tags around them; the closers of a family mean nothing behind them."""
    return Format(
        "function",
        (),
        ("<function={}>",),
        parse_function,
        ("</function>",),
        keeps_opener=True,
        keeps_closer=True,
        whole_body=True,
        body=function_body,
        cost=COST,
        values=FUNCTION.values,
        partial=_function_partial,
        first="{<",
        follows=format.closers,
    )


def with_others(format: Format) -> Format:
    """A format in whose tags JSON and functions are read where it has something else between them."""
    if format.keeps_opener or not format.openers[0].startswith("<") or not (format.first or format.values):
        return format
    alike = replace(format, parse_last=None, continues="", shows="")
    written = replace(
        alike,
        name=f"{format.name}-json",
        parse=parse_json,
        first="{[`",
        ends=("}", "]"),
        body=json_body,
        partial=_json_partial,
        cost=JSON_COST,
        values=None,
    )
    function = replace(
        alike,
        name=f"{format.name}-function",
        parse=parse_function,
        first="<",
        ends=("</function>",),
        body=function_body,
        partial=_function_partial,
        cost=COST,
        values=FUNCTION.values,
    )
    return replace(format, others=(written, function))


def parse_json(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "arguments": {...}}, or with "parameters", or a list of them. Raises ValueError, Cut."""
    head = FENCE.match(block)
    assert head is not None  # it matches nothing as well
    value, end = decoded(block, head.end())
    if block[end:].strip(" \r\n\t`"):
        return None
    found = list[Call]()
    for each in value if isinstance(value, list) else [value]:
        call = call_of(each, next((key for key in KEYS if isinstance(each, dict) and key in each), KEYS[0]))
        if call is None or not _offered(call, tools) or "description" in (each.get("function") or each):  # of a tool
            return None
        found.append(call)
    return found or None


def _offered(call: Call, tools: Sequence[Tool]) -> bool:
    return any(tool.name == call.name for tool in tools)


def _json_partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    head = FENCE.match(block)
    return of_json(block[head.end() :] if head is not None else block, tools)


def json_body(tools: Sequence[Tool], mark: Mark) -> str:
    kind = optional_pair("type", literal('"function"'), first=True)
    calls = [called(tool, key, before=kind, turned=False) for tool in tools for key in KEYS]
    space = "JSON_SPACE?"
    several = f'"[" {space} call ({space} "," {space} call)* {space} "]"'
    return f"(/```({'|'.join(LANGUAGES)})?[ \\n]{{0,4}}/)? (call | {several})\ncall: {' | '.join(calls)}"


def parse_function(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """<function=name>, a JSON object or parameters in tags, </function>. Raises ValueError, Cut."""
    head = re.compile(rf"\s*<function=({named(tools)})>\s*(?=\{{)").match(block)
    if head is None:
        found = FUNCTION.parse(block, tools)
        return found if found and all(_offered(call, tools) for call in found) else None
    value, end = decoded(block, head.end())
    if not isinstance(value, dict) or block[end:].strip().removeprefix("</function>").strip():
        return None
    return [Call(head[1], value)] if _offered(Call(head[1], value), tools) else None


def _function_partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    head = re.compile(rf"\s*<function=({named(tools)})>\s*(?=\{{)").match(block)
    return arguments_of(head[1], block, head.end()) if head is not None else FUNCTION.partial(block, tools)


def function_body(tools: Sequence[Tool], mark: Mark) -> str:
    objects = [f'({literal(f"<function={tool.name}>")} JSON_SPACE? {arguments(tool)} JSON_SPACE? "</function>")' for tool in tools]
    return FUNCTION.body(tools, mark).replace("\ncall: ", f"\ncall: {' | '.join(objects)} | ", 1)


def parse_python(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """name(argument=value, ...), or a list of them, with arguments that the tool has. Raises ValueError, Cut."""
    head = FENCE.match(block)
    assert head is not None  # it matches nothing as well
    if skipped(block, head.end()) == len(block):
        raise Cut
    found = pythonic.parse(block[head.end() :], tools)
    keys = {tool.name: {key for each in variants(tool.name, tool.parameters) for key in each["properties"]} for tool in tools}
    return found if found and all(call.name in keys and set(call.arguments) <= keys[call.name] for call in found) else None
