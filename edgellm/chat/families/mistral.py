"""Calls of Mistral's models: [TOOL_CALLS] and a JSON list, or since Small 3.2 name[ARGS]{...} for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from edgellm.chat.families._format import Format, Mark, arguments, called, literal, named, optional_pair
from edgellm.chat.families._headed import headed
from edgellm.chat.families._lists import parse_one
from edgellm.chat.families._partial import headed as headed_partial
from edgellm.chat.families._partial import of_json
from edgellm.chat.tools import Call, Tool, call_of

NAMED = r"\s*(?:\[TOOL_CALLS\])?\s*(%s)(?:\[CALL_ID\][^\[]*)?\[ARGS\]\s*"
BEGUN = re.compile(r"\[TOOL_CALLS\][^{]*|\[[A-Z_]*")


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    head = re.compile(NAMED % named(tools))
    if not head.match(block):
        return parse_one(block, lambda value: [call] if (call := call_of(value)) else None)
    return headed(block, head, BEGUN, lambda match, arguments, number: Call(match[1], arguments))


def body(tools: Sequence[Tool], mark: Mark) -> str:
    number = optional_pair("id", "CALL_ID", first=False)
    calls = [called(tool, "arguments", after=number) for tool in tools]
    return '"[" call ("," " "? call)* "]"\ncall: ' + " | ".join(calls) + '\nCALL_ID: /"[a-zA-Z0-9]{9}"/'


def named_body(tools: Sequence[Tool], mark: Mark) -> str:
    """Names come before the arguments; Small 3.1 writes an id in between."""
    number = f"({mark('[CALL_ID]')} /[a-zA-Z0-9]{{9}}/)? "
    calls = [f"{literal(tool.name)} {number}{mark('[ARGS]')} {arguments(tool)}" for tool in tools]
    return f"call ({mark('[TOOL_CALLS]')} call)*\ncall: " + " | ".join(calls)


FORMAT = Format(
    "mistral",
    (("[TOOL_CALLS]",),),
    ("[TOOL_CALLS]",),
    parse,
    markers=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    body=body,
    ends=("]", "}"),
    partial=of_json,
)
NAMED_FORMAT = replace(
    FORMAT,
    name="mistral-named",
    detects=(("[TOOL_CALLS]", "[ARGS]"),),
    body=named_body,
    partial=headed_partial(lambda tools: NAMED % named(tools)),
)
