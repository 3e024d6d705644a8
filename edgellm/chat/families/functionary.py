"""Calls of Functionary 3.1 and of Llama 3.1's custom tools: <function=NAME>, a JSON object of arguments, </function>."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.families._format import Format, Mark, arguments, literal, named
from edgellm.chat.families._partial import Partial, arguments_of
from edgellm.chat.tools import Call, Tool


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    match = re.match(rf"({named(tools)})>", block)
    arguments = json.loads(block[match.end() :]) if match else None
    return [Call(match[1], arguments)] if match and isinstance(arguments, dict) else None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    calls = [f"{literal(tool.name + '>')} {arguments(tool)}" for tool in tools]
    return f"({' | '.join(calls)})"


def partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    name, _, _ = block.partition(">")
    return arguments_of(name, block, len(name) + 1)


FORMAT = Format(
    "functionary",
    (("<function=example_function_name>{",),),
    ("<function=",),
    parse,
    ("</function>",),
    body=body,
    ends=("}",),
    partial=partial,
)
