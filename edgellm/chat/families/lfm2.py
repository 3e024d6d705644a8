"""Calls of LFM2: a list in Python's syntax between <|tool_call_start|> and <|tool_call_end|>."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.chat.families import pythonic
from edgellm.chat.families._format import Format
from edgellm.chat.tools import Call


def write(calls: Sequence[Call]) -> list[str]:
    written = (f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})" for call in calls)
    return [f"[{', '.join(written)}]"]


FORMAT = Format(
    "lfm2",
    (("<|tool_list_start|>",), ("<|tool_call_start|>",)),
    ("<|tool_call_start|>",),
    pythonic.parse,
    ("<|tool_call_end|>",),
    markers=("<|tool_call_start|>", "<|tool_call_end|>"),
    body=pythonic.listed_body,
    write=write,
    cost=pythonic.COST,
    partial=pythonic.partial,
    first="[",
    ends=("]",),
)
