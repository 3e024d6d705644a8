"""Calls as JSON: {"name": ..., "arguments": {...}}, one after another or in a list."""
from __future__ import annotations

import json
from collections.abc import Sequence

from edgellm.chat.parsers._format import Mark, inline
from edgellm.chat.tools import Call, Tool, call_of

DECODER = json.JSONDecoder()
BETWEEN = ", \t\r\n"


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """Some models write "parameters" for "arguments"."""
    found, calls = list[object](), list[Call]()
    block = block.strip(BETWEEN)
    at = 0
    while at < len(block):
        value, at = DECODER.raw_decode(block, at)
        found += value if isinstance(value, list) else [value]
        while at < len(block) and block[at] in BETWEEN:
            at += 1
    for each in found:
        key = "parameters" if isinstance(each, dict) and "arguments" not in each else "arguments"
        call = call_of(each, key)
        if call is None:
            return None
        calls.append(call)
    return calls


def body(tools: Sequence[Tool], mark: Mark) -> str:
    return listed([called(tool, "arguments") for tool in tools])


def called(tool: Tool, key: str) -> str:
    """One call in a grammar."""
    return inline({"type": "object", "properties": {"name": {"const": tool.name}, key: tool.parameters},
                   "required": ["name", key], "additionalProperties": False}, tool.parameters)


def listed(calls: Sequence[str]) -> str:
    return '"[" call ("," " "? call)* "]"\ncall: ' + " | ".join(calls)
