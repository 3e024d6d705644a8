"""Calls as JSON within <tool_call>: Hermes, Qwen2.5, Qwen3 and many others."""

from __future__ import annotations

import json
from collections.abc import Sequence

from edgellm.chat.families._format import Format, Mark, inline
from edgellm.chat.tools import Call, Tool, call_of


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "arguments": {...}}"""
    call = call_of(json.loads(block))
    return [call] if call else None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    calls = [
        inline(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": tool.parameters},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            },
            tool.parameters,
        )
        for tool in tools
    ]
    return f'"\\n" ({" | ".join(calls)}) "\\n"'


def write(calls: Sequence[Call]) -> list[str]:
    return [f"\n{json.dumps(call._asdict(), ensure_ascii=False)}\n" for call in calls]


FORMAT = Format(
    "hermes",
    (("<tool_call>",),),
    ("<tool_call>",),
    parse,
    ("</tool_call>",),
    markers=("<tool_call>", "</tool_call>"),
    body=body,
    write=write,
)
