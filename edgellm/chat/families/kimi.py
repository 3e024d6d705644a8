"""Calls of Kimi K2 and Kimi Linear: an id of the tool's name and a number, and JSON, in a section of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any  # Any: JSON

from edgellm.chat.families import _partial
from edgellm.chat.families._format import Format, Mark, arguments, literal, named
from edgellm.chat.families._headed import headed
from edgellm.chat.tools import Tool, ToolCall

BEGIN, ARGUMENTS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
HEAD = rf"\s*{re.escape(BEGIN)}\s*(?:functions\.)?(%s)(?::(\d+))?\s*{re.escape(ARGUMENTS)}\s*"
BEGUN = re.compile(rf"{re.escape(BEGIN)}[^<{{]*(?:<[^<>{{]*>?\s*)?|<[|\w]*")
TAIL = rf"\s*(?:{re.escape(END)}|\Z)"


def call_id(name: str, number: int) -> str:
    return f"functions.{name}:{number}"


def parse(block: str, tools: Sequence[Tool]) -> list[ToolCall]:
    """The model counts the calls of a conversation from 0."""

    def call(match: re.Match[str], arguments: dict[str, Any], number: int) -> ToolCall:
        return ToolCall(match[1], arguments, call_id(match[1], int(match[2] or number)))

    return headed(block, re.compile(HEAD % named(tools, r"[^\s<]+?")), BEGUN, call, TAIL)


def body(tools: Sequence[Tool], mark: Mark) -> str:
    calls = [f"{literal(f'functions.{tool.name}:')} NUMBER {mark(ARGUMENTS)} {arguments(tool)}" for tool in tools]
    return f"call+\ncall: {mark(BEGIN)} ({' | '.join(calls)}) {mark(END)}\nNUMBER: /[0-9]{{1,4}}/"


# The model writes the section's marks in the singular now and then.
OPENERS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
CLOSERS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
FORMAT = Format(
    "kimi",
    ((OPENERS[0],),),
    OPENERS,
    parse,
    CLOSERS,
    markers=(*OPENERS, BEGIN, ARGUMENTS, END, *CLOSERS),
    body=body,
    call_id=call_id,
    first="<",
    ends=(END,),
    bare=(BEGIN, END),
    partial=_partial.headed(lambda tools: (HEAD % named(tools, r"[^\s<]+?")).replace(r"(?::(\d+))?", r"(?::\d+)?")),
)
