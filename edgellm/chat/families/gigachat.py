"""Calls of GigaChat 3, a message of their own with a JSON object, and of GigaChat 3.1, which has a mark for them."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.chat.families import hermes
from edgellm.chat.families._format import Format, Mark, called
from edgellm.chat.families._partial import of_json
from edgellm.chat.tools import Call, Tool

ROLE, NEXT = "<|role_sep|>\n", "<|message_sep|>\n\n"  # control tokens, with their new lines or without them
HEAD, MARKED = "function call", "<|function_call|>"


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "arguments": {...}}"""
    return hermes.parse(block.strip().removesuffix(NEXT.strip()), tools)


def body(tools: Sequence[Tool], mark: Mark) -> str:
    return f"({' | '.join(called(tool, 'arguments') for tool in tools)})"


FORMAT = Format(
    "gigachat-3",
    (("<|role_sep|>", HEAD),),
    (NEXT + HEAD + ROLE, HEAD + ROLE),
    parse,
    (NEXT,),
    markers=(ROLE, ROLE.rstrip()),
    unseen=(NEXT, NEXT.rstrip()),
    body=body,
    ends=("}",),
    partial=of_json,
)
MARKED_FORMAT = Format(
    "gigachat-3.1",
    (("<|role_sep|>", MARKED),),
    (MARKED,),
    parse,
    markers=(MARKED,),
    body=body,
    first="{",
    ends=("}",),
    partial=of_json,
)
