"""Calls of Command R7B, Command A and North: a JSON list in an action; of Command R and R+ in a fence behind "Action:"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any  # Any: JSON

from edgellm.chat.answer_marks import RESPONSE_TOKENS, TEXT_TOKENS
from edgellm.chat.families._format import Format, Mark, called, inline, optional_pair
from edgellm.chat.families._lists import parse_one
from edgellm.chat.families._partial import of_json
from edgellm.chat.tools import Call, Tool, call_of

BLANKS = "BLANKS: /[ \\n]{1,9}/"
ANSWERS = ("directly_answer", "directly-answer")  # Command R "calls" them where it needs no tool


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"tool_name": ..., "parameters": {...}}, one or a list of them; the model's numbers for calls hold for one answer only."""

    def read(value: Any) -> list[Call] | None:
        named = {"name": value.get("tool_name"), "arguments": value.get("parameters", {})} if isinstance(value, dict) else None
        call = call_of(named)
        if call is None:
            return None
        return [] if call.name in ANSWERS and all(tool.name != call.name for tool in tools) else [call]

    return parse_one(block, read)


def body(tools: Sequence[Tool], mark: Mark) -> str:
    number = optional_pair("tool_call_id", "NUMBER", first=True)
    calls = [called(tool, "parameters", name="tool_name", before=number) for tool in tools]
    return f'{_list(calls)}\n{BLANKS}\nNUMBER: /"[0-9]{{1,3}}"/'


def fenced_body(tools: Sequence[Tool], mark: Mark) -> str:
    direct = inline(
        {
            "type": "object",
            "properties": {"tool_name": {"enum": [*ANSWERS]}, "parameters": {"const": {}}},
            "required": ["tool_name", "parameters"],
            "additionalProperties": False,
        }
    )
    return f"{_list([*(called(tool, 'parameters', name='tool_name') for tool in tools), direct])}\n{BLANKS}"


def _list(calls: Sequence[str]) -> str:
    return f'BLANKS? "[" BLANKS? call (BLANKS? "," BLANKS? call)* BLANKS? "]" BLANKS?\ncall: {" | ".join(calls)}'


def write(calls: Sequence[Call]) -> list[str]:
    listed = [{"tool_call_id": str(n), "tool_name": call.name, "parameters": call.arguments} for n, call in enumerate(calls)]
    return [json.dumps(listed, ensure_ascii=False)]


def fenced_write(calls: Sequence[Call]) -> list[str]:
    listed = [{"tool_name": call.name, "parameters": call.arguments} for call in calls]
    return [f"\n{json.dumps(listed, ensure_ascii=False, indent=4)}\n"]


FORMAT = Format(
    "command",
    (("<|START_ACTION|>",),),
    ("<|START_ACTION|>",),
    parse,
    ("<|END_ACTION|>",),
    markers=("<|START_ACTION|>", "<|END_ACTION|>"),
    body=body,
    answers=(RESPONSE_TOKENS, TEXT_TOKENS),
    write=write,
    first="[{",
    partial=of_json,
    ends=("]", "}"),
)
FENCED_FORMAT = Format(
    "command-r",
    (("json-formatted list of actions",),),
    ("Action: ```json", "Action:```json", "Action:\n```json"),
    parse,
    ("```",),
    body=fenced_body,
    ends=("]",),
    partial=of_json,
    write=fenced_write,
)
