"""Calls of Mistral's models: [TOOL_CALLS] and a JSON list, or since Small 3.2 name[ARGS]{...} for each."""
from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.parsers._format import Format, inline
from edgellm.chat.tools import Call, Tool, call_of

DECODER = json.JSONDecoder()
NAMED = re.compile(r"\s*(?:\[TOOL_CALLS\])?\s*([\w.-]+)(?:\[CALL_ID\][^\[]*)?\[ARGS\]\s*")


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    if not NAMED.match(block):
        found = json.loads(block)
        calls = [call_of(each) for each in (found if isinstance(found, list) else [found])]
        return None if None in calls else [call for call in calls if call]
    at, named = 0, list[Call]()
    while match := NAMED.match(block, at):
        arguments, at = DECODER.raw_decode(block, match.end())
        if not isinstance(arguments, dict):
            return None
        named.append(Call(match[1], arguments))
    return None if block[at:].strip() else named


def body(tools: Sequence[Tool]) -> str:
    calls = [inline({"type": "object", "properties": {"name": {"const": tool.name}, "arguments": tool.parameters,
                                                      "id": {"type": "string", "pattern": "^[a-zA-Z0-9]{9}$"}},
                     "required": ["name", "arguments"], "additionalProperties": False}, tool.parameters) for tool in tools]
    return '"[" call ("," " "? call)* "]"\ncall: ' + " | ".join(calls)


FORMAT = Format("mistral", (("[TOOL_CALLS]",),), ("[TOOL_CALLS]",), parse, markers=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
                body=body)
# The same, without a grammar of its own: its arguments are not constrained.
NAMED_FORMAT = Format("mistral-named", (("[TOOL_CALLS]", "[ARGS]"),), FORMAT.openers, parse, markers=FORMAT.markers)
