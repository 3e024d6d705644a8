"""Calls of Apertus: a JSON list of {name: arguments} between <|tools_prefix|> and <|tools_suffix|>."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any  # Any: JSON

from edgellm.chat.families._format import Format, Mark, arguments, literal, named
from edgellm.chat.families._lists import listed, parse_one
from edgellm.chat.families._partial import headed
from edgellm.chat.tools import Call, Tool


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    return parse_one(block, _read)


def _read(value: Any) -> list[Call] | None:
    if not isinstance(value, dict) or not all(name and isinstance(arguments, dict) for name, arguments in value.items()):
        return None
    return [Call(name, arguments) for name, arguments in value.items()]


def body(tools: Sequence[Tool], mark: Mark) -> str:
    names = [literal(json.dumps(tool.name, ensure_ascii=False)) for tool in tools]
    pairs = [f'{name} JSON_SPACE? ":" JSON_SPACE? {arguments(tool)}' for name, tool in zip(names, tools, strict=True)]
    return listed([f'("{{" JSON_SPACE? {pair} JSON_SPACE? "}}")' for pair in pairs])


FORMAT = Format(
    "apertus",
    (("<|tools_prefix|>",),),
    ("<|tools_prefix|>",),
    parse,
    ("<|tools_suffix|>",),
    markers=("<|tools_prefix|>", "<|tools_suffix|>"),
    body=body,
    first="[{",
    ends=("]",),
    partial=headed(lambda tools: rf'\s*\[?\s*\{{\s*"({named(tools)})"\s*:\s*'),
)
