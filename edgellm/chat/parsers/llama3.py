"""Calls of Llama 3.1 to 3.3: a JSON object as the whole answer, or after <|python_tag|>."""
from __future__ import annotations

import json
from collections.abc import Sequence

from edgellm.chat.parsers._format import Format, Mark, inline
from edgellm.chat.tools import Call, Tool, call_of

DECODER = json.JSONDecoder()


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "parameters": {...}}, one or several, between them blanks or semicolons."""
    block, at, calls = block.removeprefix("<|python_tag|>").strip(), 0, list[Call]()
    while at < len(block):
        value, at = DECODER.raw_decode(block, at)
        call = call_of(value, "parameters" if isinstance(value, dict) and "parameters" in value else "arguments")
        if call is None:
            return None
        calls.append(call)
        while at < len(block) and block[at] in "; \t\n,":
            at += 1
    return calls


def body(tools: Sequence[Tool], mark: Mark) -> str:
    calls = [inline({"type": "object", "properties": {"type": {"const": "function"}, "name": {"const": tool.name},
                                                      "parameters": tool.parameters},
                     "required": ["name", "parameters"], "additionalProperties": False}, tool.parameters) for tool in tools]
    return f'({" | ".join(calls)})'


FORMAT = Format("llama3", (("<|python_tag|>",), ("Environment: ipython",)), ("<|python_tag|>", "{"), parse, at_start=True,
                keeps_opener=True, markers=("<|python_tag|>",), body=body)
