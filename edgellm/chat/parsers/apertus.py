"""Calls of Apertus: a JSON list of {name: arguments} between <|tools_prefix|> and <|tools_suffix|>."""
from __future__ import annotations

import json
from collections.abc import Sequence

from edgellm.chat.parsers._format import Format, Mark, inline
from edgellm.chat.parsers._lists import listed
from edgellm.chat.tools import Call, Tool


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    found = json.loads(block)
    calls = list[Call]()
    for each in found if isinstance(found, list) else [found]:
        if not isinstance(each, dict) or not all(name and isinstance(arguments, dict) for name, arguments in each.items()):
            return None
        calls += [Call(name, arguments) for name, arguments in each.items()]
    return calls


def body(tools: Sequence[Tool], mark: Mark) -> str:
    return listed([inline({"type": "object", "properties": {tool.name: tool.parameters}, "required": [tool.name],
                           "additionalProperties": False}, tool.parameters) for tool in tools])


FORMAT = Format("apertus", (("<|tools_prefix|>",),), ("<|tools_prefix|>",), parse, ("<|tools_suffix|>",),
                markers=("<|tools_prefix|>", "<|tools_suffix|>"), body=body)
