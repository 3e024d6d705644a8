"""Calls of Apertus: a JSON list of {name: arguments} between <|tools_prefix|> and <|tools_suffix|>."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # Any: JSON

from edgellm.chat.families._format import Format, Mark, inline
from edgellm.chat.families._lists import listed, parse_one
from edgellm.chat.tools import Call, Tool


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    return parse_one(block, _read)


def _read(value: Any) -> list[Call] | None:
    if not isinstance(value, dict) or not all(name and isinstance(arguments, dict) for name, arguments in value.items()):
        return None
    return [Call(name, arguments) for name, arguments in value.items()]


def body(tools: Sequence[Tool], mark: Mark) -> str:
    return listed(
        [
            inline(
                {
                    "type": "object",
                    "properties": {tool.name: tool.parameters},
                    "required": [tool.name],
                    "additionalProperties": False,
                },
                tool.parameters,
            )
            for tool in tools
        ]
    )


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
)
