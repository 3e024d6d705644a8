"""Calls of Granite 3: <|tool_call|> and a JSON list, to the answer's end."""

from __future__ import annotations

import json
from collections.abc import Sequence

from edgellm.chat.families import mistral
from edgellm.chat.families._format import Format
from edgellm.chat.families._partial import of_json
from edgellm.chat.tools import Call


def write(calls: Sequence[Call]) -> list[str]:
    return [json.dumps([call._asdict() for call in calls], ensure_ascii=False)]


FORMAT = Format(
    "granite",
    (("<|tool_call|>",),),
    ("<|tool_call|>",),
    mistral.parse,
    markers=("<|tool_call|>",),
    body=mistral.body,
    write=write,
    ends=("]", "}"),
    partial=of_json,
)
